//! A consumer in a group.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use serde_json::{json, Value};

use crate::{config, text, Answer, Failure};

const MOST_RECORDS: usize = 500;

pub struct Member {
    consumer: BaseConsumer,
    topic: String,
    uncommitted: BTreeMap<i32, i64>,
}

impl Member {
    pub fn open(operation: &Value) -> Result<Self, Failure> {
        let mut settings = config(operation)?;
        settings
            .set("group.id", text(operation, "group")?)
            .set("partition.assignment.strategy", text(operation, "strategy")?)
            .set("auto.offset.reset", "earliest")
            .set("isolation.level", text(operation, "isolation")?)
            .set("enable.auto.commit", "false")
            .set("session.timeout.ms", "6000")
            .set("heartbeat.interval.ms", "300");
        if let Some(instance) = operation["instance"].as_str() {
            settings.set("group.instance.id", instance);
        }
        let consumer: BaseConsumer = settings.create()?;
        let topic = text(operation, "topic")?.to_string();
        consumer.subscribe(&[&topic])?;
        Ok(Self { consumer, topic, uncommitted: BTreeMap::new() })
    }

    /// Gives partition and offset of what comes in time; only a fatal error is one.
    pub fn poll(&mut self, timeout: Duration) -> Answer {
        let deadline = Instant::now() + timeout;
        let mut records = Vec::new();
        while records.len() < MOST_RECORDS {
            // What has come already is taken; for the first record there is time.
            let left = match records.len() {
                0 => deadline.saturating_duration_since(Instant::now()),
                _ => Duration::ZERO,
            };
            match self.consumer.poll(left) {
                None if records.is_empty() && Instant::now() < deadline => {}
                None => break,
                Some(Ok(read)) => {
                    records.push(json!([read.partition(), read.offset()]));
                    self.uncommitted.insert(read.partition(), read.offset() + 1);
                }
                Some(Err(KafkaError::MessageConsumptionFatal(error))) => return Err(error.into()),
                Some(Err(error)) => eprintln!("{error}"),
            }
        }
        let assigned = self.assigned()?;
        self.uncommitted.retain(|partition, _| assigned.contains(partition));
        Ok(json!({ "records": records, "assigned": assigned }))
    }

    /// Commits what was read, and tells what was acknowledged.
    pub fn commit(&mut self) -> Answer {
        let mut offsets = TopicPartitionList::new();
        for (partition, next) in &self.uncommitted {
            offsets.add_partition_offset(&self.topic, *partition, Offset::Offset(*next))?;
        }
        if offsets.count() > 0 {
            self.consumer.commit(&offsets, CommitMode::Sync)?;
        }
        let committed: Vec<_> = std::mem::take(&mut self.uncommitted).into_iter().collect();
        Ok(json!({ "committed": committed }))
    }

    fn assigned(&self) -> Result<Vec<i32>, Failure> {
        let assignment = self.consumer.assignment()?;
        let mut partitions: Vec<i32> =
            assignment.elements().iter().map(|one| one.partition()).collect();
        partitions.sort_unstable();
        Ok(partitions)
    }
}
