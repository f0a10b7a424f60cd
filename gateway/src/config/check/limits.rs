//! Numbers: what memory, times, counts and login parameters may be.

use std::ops::RangeInclusive;

use serde_yaml::Spanned;

use super::Checker;
use crate::config::quantity::Bytes;
use crate::config::{Limits, Parameters, raw};

const SEGMENT: RangeInclusive<u64> = 512..=16_777_215;

impl Checker {
    pub(super) fn limits(&mut self, raw: raw::Limits) -> Limits {
        let base = Limits::default();
        let page = 4096;
        let limits = Limits {
            memory: raw.memory.map(|memory| self.size("limits.memory", &memory, (1 << 20)..=(1 << 50))),
            data_area: self.size_or(
                "limits.data_area",
                raw.data_area,
                (64 << 10)..=(1 << 40),
                base.data_area,
            ),
            command_area: self.size_or(
                "limits.command_area",
                raw.command_area,
                (16 << 10)..=(64 << 20),
                base.command_area,
            ),
            block: self.size_or("limits.block", raw.block, page..=(4 << 20), base.block),
            largest_command: self.size_or(
                "limits.largest_command",
                raw.largest_command,
                page..=(64 << 20),
                base.largest_command,
            ),
            idle_floor: self.size_or("limits.idle_floor", raw.idle_floor, 0..=(1 << 40), base.idle_floor),
            idle_shrink: raw.idle_shrink.map_or(base.idle_shrink, |time| time.0),
            qfull_timeout: raw.qfull_timeout.map_or(base.qfull_timeout, |time| time.0),
            connections: raw
                .connections
                .map_or(base.connections, |n| self.range("limits.connections", &n, 1..=1_000_000)),
            sessions: raw
                .sessions
                .map_or(base.sessions, |n| self.range("limits.sessions", &n, 1..=1_000_000)),
            sessions_per_initiator: raw.sessions_per_initiator.map_or(base.sessions_per_initiator, |n| {
                self.range("limits.sessions_per_initiator", &n, 1..=1_000_000)
            }),
            logins: raw.logins.map_or(base.logins, |n| self.range("limits.logins", &n, 1..=1_000_000)),
            logins_per_address: raw.logins_per_address.map_or(base.logins_per_address, |n| {
                self.range("limits.logins_per_address", &n, 1..=1_000_000)
            }),
            login_timeout: raw.login_timeout.map_or(base.login_timeout, |time| time.0),
            nop_interval: raw.nop_interval.map_or(base.nop_interval, |time| time.0),
            nop_timeout: raw.nop_timeout.map_or(base.nop_timeout, |time| time.0),
            data_out_timeout: raw.data_out_timeout.map_or(base.data_out_timeout, |time| time.0),
            shutdown_grace: raw.shutdown_grace.map_or(base.shutdown_grace, |time| time.0),
        };
        for (field, value) in [
            ("limits.block", limits.block),
            ("limits.data_area", limits.data_area),
            ("limits.command_area", limits.command_area),
        ] {
            let unit = if field == "limits.data_area" { limits.block } else { page };
            if value % unit != 0 {
                self.problem(0, field, format!("{} is no multiple of {}", Bytes(value), Bytes(unit)));
            }
        }
        limits
    }

    pub(super) fn parameters(&mut self, at: &str, raw: raw::Parameters) -> Parameters {
        let base = Parameters::default();
        let mut size = |field: &str, value: Option<Spanned<Bytes>>, otherwise: u32| {
            let value = self.size_or(&format!("{at}.{field}"), value, SEGMENT, otherwise.into());
            u32::try_from(value).unwrap_or(otherwise)
        };
        let first_burst_length = size("first_burst_length", raw.first_burst_length, base.first_burst_length);
        let max_burst_length = size("max_burst_length", raw.max_burst_length, base.max_burst_length);
        let segment = size(
            "max_recv_data_segment_length",
            raw.max_recv_data_segment_length,
            base.max_recv_data_segment_length,
        );
        if first_burst_length > max_burst_length {
            self.problem(0, &format!("{at}.first_burst_length"), "is larger than max_burst_length".into());
        }
        Parameters {
            header_digest: raw.header_digest.map_or(base.header_digest, |digest| digest.value),
            data_digest: raw.data_digest.map_or(base.data_digest, |digest| digest.value),
            initial_r2t: raw.initial_r2t.unwrap_or(base.initial_r2t),
            immediate_data: raw.immediate_data.unwrap_or(base.immediate_data),
            first_burst_length,
            max_burst_length,
            max_recv_data_segment_length: segment,
            max_outstanding_r2t: raw.max_outstanding_r2t.map_or(base.max_outstanding_r2t, |n| {
                self.range(&format!("{at}.max_outstanding_r2t"), &n, 1..=65_535)
            }),
            command_window: raw
                .command_window
                .map_or(base.command_window, |n| self.range(&format!("{at}.command_window"), &n, 1..=256)),
        }
    }
}
