//! Driver of rust-rdkafka: tests/interop/drivers/loop.py describes the conversation, one JSON object a
//! line in, one out. It does what the test of the whole system asks for: produce and open_producer
//! without a transactional id, members of groups, create_topic. Anything else is an unknown operation.

mod member;
mod producer;

use std::collections::HashMap;
use std::io::{self, BufRead, Write};
use std::time::Duration;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use serde_json::{json, Value};

use member::Member;
use producer::Producer;

pub const LIMIT: Duration = Duration::from_secs(30);

pub type Failure = Box<dyn std::error::Error>;
pub type Answer = Result<Value, Failure>;

/// What a field of an operation says.
pub fn text<'a>(operation: &'a Value, field: &str) -> Result<&'a str, Failure> {
    operation[field].as_str().ok_or_else(|| format!("no {field}").into())
}

/// What a field of an operation says, as a number.
pub fn number(operation: &Value, field: &str) -> Result<i64, Failure> {
    operation[field].as_i64().ok_or_else(|| format!("no {field}").into())
}

/// Settings of every client.
pub fn config(operation: &Value) -> Result<ClientConfig, Failure> {
    let mut config = ClientConfig::new();
    config
        .set("bootstrap.servers", text(operation, "bootstrap")?)
        .set("reconnect.backoff.ms", "100")
        .set("reconnect.backoff.max.ms", "500");
    Ok(config)
}

fn create_topic(operation: &Value) -> Answer {
    let admin: AdminClient<DefaultClientContext> = config(operation)?.create()?;
    let name = text(operation, "topic")?;
    let partitions = i32::try_from(number(operation, "partitions")?)?;
    let topic = NewTopic::new(name, partitions, TopicReplication::Fixed(1));
    let options = AdminOptions::new().request_timeout(Some(LIMIT));
    for result in futures_executor::block_on(admin.create_topics([&topic], &options))? {
        result.map_err(|(topic, code)| format!("{topic}: {code}"))?;
    }
    Ok(json!({}))
}

/// What lives between two operations, each by a name of the test's own.
#[derive(Default)]
struct Driver {
    members: HashMap<String, Member>,
    producers: HashMap<String, Producer>,
}

impl Driver {
    fn run(&mut self, operation: &Value) -> Answer {
        match text(operation, "do")? {
            "create_topic" => create_topic(operation),
            "produce" => self.produce(operation),
            "open_producer" => {
                let opened = Producer::open(operation)?;
                self.producers.insert(text(operation, "producer")?.into(), opened);
                Ok(json!({}))
            }
            "close_producer" => {
                self.producers.remove(text(operation, "producer")?);
                Ok(json!({}))
            }
            "open_member" => {
                let opened = Member::open(operation)?;
                self.members.insert(text(operation, "member")?.into(), opened);
                Ok(json!({}))
            }
            "poll_members" => self.poll_members(operation),
            "commit_member" => self.member(text(operation, "member")?)?.commit(),
            "close_member" => {
                self.members.remove(text(operation, "member")?);
                Ok(json!({}))
            }
            unknown => Err(format!("unknown operation {unknown}").into()),
        }
    }

    fn produce(&mut self, operation: &Value) -> Answer {
        match operation["producer"].as_str() {
            None => Producer::open(operation)?.send(operation),
            Some(name) => self
                .producers
                .get(name)
                .ok_or_else(|| format!("no producer {name}"))?
                .send(operation),
        }
    }

    /// One after the other, as the test of the whole system has one member in each process.
    fn poll_members(&mut self, operation: &Value) -> Answer {
        let seconds = operation["timeout_s"].as_f64().ok_or("no timeout_s")?;
        let names = operation["members"].as_array().ok_or("no members")?;
        let mut found = serde_json::Map::new();
        for name in names {
            let name = name.as_str().ok_or("a member without a name")?;
            let polled = self.member(name)?.poll(Duration::from_secs_f64(seconds))?;
            found.insert(name.into(), polled);
        }
        Ok(json!({ "members": found }))
    }

    fn member(&mut self, name: &str) -> Result<&mut Member, Failure> {
        self.members.get_mut(name).ok_or_else(|| format!("no member {name}").into())
    }
}

fn main() -> io::Result<()> {
    let mut driver = Driver::default();
    let mut answers = io::stdout().lock();
    for line in io::stdin().lock().lines() {
        let line = line?;
        let result = serde_json::from_str::<Value>(&line)
            .map_err(Failure::from)
            .and_then(|operation| driver.run(&operation));
        let answer = result.unwrap_or_else(|error| {
            eprintln!("{error}");
            json!({ "error": error.to_string() })
        });
        writeln!(answers, "{answer}")?;
        answers.flush()?;
    }
    Ok(())
}
