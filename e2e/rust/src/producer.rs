//! An idempotent producer.

use std::sync::mpsc::{self, Sender};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use base64::{engine::general_purpose::STANDARD, Engine};
use rdkafka::client::ClientContext;
use rdkafka::message::{Header, Message, OwnedHeaders};
use rdkafka::producer::{
    BaseProducer, BaseRecord, DeliveryResult, Producer as _, ProducerContext, PurgeConfig,
};
use serde_json::{json, Value};

use crate::{config, number, text, Answer, Failure, LIMIT};

type Delivered = (usize, Result<i64, String>);

/// Tells what became of each record, by its place among those of an operation.
struct Deliveries(Mutex<Option<Sender<Delivered>>>);

impl ClientContext for Deliveries {}

impl ProducerContext for Deliveries {
    type DeliveryOpaque = Box<usize>;

    fn delivery(&self, result: &DeliveryResult<'_>, place: Box<usize>) {
        let outcome = match result {
            Ok(message) => Ok(message.offset()),
            Err((error, _)) => Err(error.to_string()),
        };
        // Nobody waits for a record of an operation that has failed.
        if let Some(told) = self.0.lock().expect("no thread panics with it").as_ref() {
            let _ = told.send((*place, outcome));
        }
    }
}

pub struct Producer(BaseProducer<Deliveries>);

impl Producer {
    /// Opens one that is idempotent, unless the operation says that it is not.
    pub fn open(operation: &Value) -> Result<Self, Failure> {
        if !operation["transactional_id"].is_null() {
            return Err("this driver has no transactional producers".into());
        }
        let idempotent = operation["idempotent"].as_bool().unwrap_or(true);
        let mut settings = config(operation)?;
        settings
            .set("acks", "all")
            .set("enable.idempotence", idempotent.to_string())
            .set("compression.type", operation["codec"].as_str().unwrap_or("none"))
            .set("message.timeout.ms", LIMIT.as_millis().to_string())
            .set("linger.ms", "5");
        Ok(Self(settings.create_with_context(Deliveries(Mutex::new(None)))?))
    }

    /// Sends an operation's records, and tells their offsets when all are acknowledged.
    pub fn send(&self, operation: &Value) -> Answer {
        let records = operation["records"].as_array().ok_or("no records")?;
        let topic = text(operation, "topic")?;
        let partition = i32::try_from(number(operation, "partition")?)?;
        let (told, outcomes) = mpsc::channel();
        *self.0.context().0.lock().expect("no thread panics with it") = Some(told);
        for (place, record) in records.iter().enumerate() {
            let (key, value) = (bytes(&record["key"])?, bytes(&record["value"])?);
            let mut sent = BaseRecord::with_opaque_to(topic, Box::new(place))
                .partition(partition)
                .timestamp(number(record, "timestamp_ms")?)
                .headers(headers(&record["headers"])?);
            sent.key = key.as_deref();
            sent.payload = value.as_deref();
            self.0.send(sent).map_err(|(error, _)| error)?;
        }
        let mut offsets = vec![0; records.len()];
        let mut missing = records.len();
        let deadline = Instant::now() + LIMIT + Duration::from_secs(5);
        while missing > 0 {
            if Instant::now() > deadline {
                return Err(format!("{missing} records were neither sent nor refused").into());
            }
            self.0.poll(Duration::from_millis(20));
            for (place, outcome) in outcomes.try_iter() {
                offsets[place] = outcome?;
                missing -= 1;
            }
        }
        Ok(json!({ "offsets": offsets }))
    }
}

impl Drop for Producer {
    /// Gives up what was not sent.
    fn drop(&mut self) {
        self.0.purge(PurgeConfig::default().queue().inflight());
        let _ = self.0.flush(Duration::from_secs(1));
    }
}

fn bytes(field: &Value) -> Result<Option<Vec<u8>>, Failure> {
    Ok(match field.as_str() {
        Some(text) => Some(STANDARD.decode(text)?),
        None => None,
    })
}

fn headers(field: &Value) -> Result<OwnedHeaders, Failure> {
    let mut all = OwnedHeaders::new();
    for pair in field.as_array().ok_or("no headers")? {
        let key = pair[0].as_str().ok_or("a header without a name")?;
        let value = bytes(&pair[1])?;
        all = all.insert(Header { key, value: value.as_ref() });
    }
    Ok(all)
}
