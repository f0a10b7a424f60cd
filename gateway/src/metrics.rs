//! Prometheus metrics, made from [`Status`] at each scrape: nothing is counted twice.
//!
//! Labels are bounded by the configuration: `target`, `lun`, `disk`; `command` is a class of the opcode table. Nothing
//! an initiator chooses becomes a label.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};

use crate::status::{Lun, State, Status};

/// Asked for the state of the gateway at each scrape.
pub type Source = Arc<dyn Fn() -> Status + Send + Sync>;

/// All metrics of the gateway.
pub fn registry(source: Source) -> Registry {
    let mut registry = Registry::with_prefix("rbdgate");
    registry.register_collector(Box::new(Scrape(source)));
    registry
}

struct Scrape(Source);

impl fmt::Debug for Scrape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scrape")
    }
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let status = (self.0)();
        gateway(&status, &mut encoder)?;
        for metric in LUN {
            lun(metric, &status.luns, &mut encoder)?;
        }
        latency(&status.luns, &mut encoder)
    }
}

fn gateway(status: &Status, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let bytes = Some(&Unit::Bytes);
    let gauges = [
        ("sessions", "Logged-in sessions", None, status.sessions.len() as u64),
        ("memory_limit", "Limit of the pool of data and command areas", bytes, status.memory.limit),
        ("memory_charged", "Resident memory of all data and command areas", bytes, status.memory.charged),
        ("memory_in_use", "Data-area memory held by commands", bytes, status.memory.in_use),
        ("memory_reserved", "Memory set aside for unsolicited data", bytes, status.memory.reserved),
        ("uptime", "Time since the gateway started", Some(&Unit::Seconds), status.uptime_seconds),
    ];
    for (name, help, unit, value) in gauges {
        let gauge = ConstGauge::new(value as i64);
        gauge.encode(encoder.encode_descriptor(name, help, unit, gauge.metric_type())?)?;
    }
    for (name, help, value) in status.portal.figures() {
        let counter = ConstCounter::new(value);
        counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
    }
    Ok(())
}

/// One figure of every LUN.
struct LunMetric {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    counts: bool,
    value: fn(&Lun) -> u64,
}

const LUN: &[LunMetric] = &[
    LunMetric {
        name: "lun_online",
        help: "1 when the LUN can serve",
        unit: None,
        counts: false,
        value: |lun| u64::from(lun.state == State::Online),
    },
    LunMetric {
        name: "lun_size",
        help: "Size of the disk",
        unit: Some(Unit::Bytes),
        counts: false,
        value: |lun| lun.size,
    },
    LunMetric {
        name: "lun_in_flight",
        help: "Commands in flight",
        unit: None,
        counts: false,
        value: |lun| lun.in_flight,
    },
    LunMetric {
        name: "lun_waiting",
        help: "Commands waiting for memory",
        unit: None,
        counts: false,
        value: |lun| lun.waiting,
    },
    LunMetric {
        name: "lun_data_area_backed",
        help: "Data area backed by memory",
        unit: Some(Unit::Bytes),
        counts: false,
        value: |lun| lun.data_area_backed,
    },
    LunMetric {
        name: "lun_data_area_in_use",
        help: "Data area held by commands",
        unit: Some(Unit::Bytes),
        counts: false,
        value: |lun| lun.data_area_in_use,
    },
    LunMetric {
        name: "lun_read",
        help: "Bytes read",
        unit: Some(Unit::Bytes),
        counts: true,
        value: |lun| lun.read_bytes,
    },
    LunMetric {
        name: "lun_written",
        help: "Bytes written",
        unit: Some(Unit::Bytes),
        counts: true,
        value: |lun| lun.written_bytes,
    },
    LunMetric {
        name: "lun_copied",
        help: "Bytes of unaligned ends of READ and WRITE buffers that went through the gateway's memory",
        unit: Some(Unit::Bytes),
        counts: true,
        value: |lun| lun.copied_bytes,
    },
    LunMetric {
        name: "lun_errors",
        help: "Commands that failed in the disk, or that it refused: full, write-protected",
        unit: None,
        counts: true,
        value: |lun| lun.errors,
    },
];

type Labels = [(&'static str, String); 3];

fn labels(lun: &Lun) -> Labels {
    [("target", lun.target.clone()), ("lun", lun.lun.to_string()), ("disk", lun.disk.clone())]
}

fn lun(metric: &LunMetric, luns: &[Lun], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let kind = if metric.counts {
        ConstCounter::new(0u64).metric_type()
    } else {
        ConstGauge::new(0i64).metric_type()
    };
    let mut family = encoder.encode_descriptor(metric.name, metric.help, metric.unit.as_ref(), kind)?;
    for lun in luns {
        let (labels, value) = (labels(lun), (metric.value)(lun));
        let one = family.encode_family(&labels)?;
        if metric.counts {
            ConstCounter::new(value).encode(one)?;
        } else {
            ConstGauge::new(value as i64).encode(one)?;
        }
    }
    Ok(())
}

/// Its count is the number of commands answered.
fn latency(luns: &[Lun], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Time from the ring to the answer, by class of command";
    let mut family =
        encoder.encode_descriptor("lun_latency", help, Some(&Unit::Seconds), MetricType::Histogram)?;
    for lun in luns {
        for (class, latency) in &lun.classes {
            let [target, number, disk] = labels(lun);
            let labels = [target, number, disk, ("command", class.clone())];
            let buckets: Vec<(f64, u64)> =
                latency.buckets.iter().map(|bucket| (bound(bucket.seconds), bucket.count)).collect();
            let count = latency.buckets.iter().map(|bucket| bucket.count).sum();
            let mut one = family.encode_family(&labels)?;
            one.encode_histogram::<Labels>(latency.sum_seconds, count, &buckets, None)?;
        }
    }
    Ok(())
}

/// JSON has no infinity, so the status says `f64::MAX` for it.
fn bound(seconds: f64) -> f64 {
    if seconds == f64::MAX { f64::INFINITY } else { seconds }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::status::{Bucket, Latency};

    #[test]
    fn a_scrape_has_every_figure_with_bounded_labels() {
        let bucket = |seconds, count| Bucket { seconds, count };
        let reads = Latency { sum_seconds: 0.5, buckets: vec![bucket(0.1, 2), bucket(f64::MAX, 1)] };
        let lun = Lun {
            target: "iqn.2026-01.com.example:one".into(),
            disk: "vm1".into(),
            read_bytes: 4096,
            classes: BTreeMap::from([("read".into(), reads)]),
            ..Lun::default()
        };
        let status = Status { luns: vec![lun], ..Status::default() };
        let mut text = String::new();
        let source: Source = Arc::new(move || status.clone());
        prometheus_client::encoding::text::encode(&mut text, &registry(source)).unwrap();
        for line in [
            "rbdgate_lun_read_bytes_total{target=\"iqn.2026-01.com.example:one\",lun=\"0\",disk=\"vm1\"} 4096",
            "rbdgate_lun_online{target=\"iqn.2026-01.com.example:one\",lun=\"0\",disk=\"vm1\"} 1",
            "rbdgate_copied_bytes_total 0",
            "rbdgate_memory_limit_bytes 0",
        ] {
            assert!(text.contains(line), "{line} is missing in\n{text}");
        }
        assert!(text.contains("rbdgate_lun_latency_seconds_count"), "{text}");
        assert!(text.contains("le=\"+Inf\""), "{text}");
    }
}
