//! Representations of data (SPC-4, RODs): what a token stands for.
//!
//! A ROD here is of the type *point in time copy – change vulnerable*: it names ranges of a unit and holds until one of
//! them is written. Nothing is copied when it is made. The unit knows its own RODs and revokes those that a write touches
//! before that write is started; whoever copies from a ROD looks after each read whether it was still good. So as far as
//! the image is written through this gateway, either every byte is of the moment the token was made, or the copy fails.
//!
//! *Who else writes is not seen*: another gateway, or a program that writes the image by itself. A change of access states
//! (the unit has another owner), a new size and the end of the unit revoke every token. Gateways that write one image at
//! the same time have to do more, see `docs/ARCHITECTURE.md`, Tokens. Tokens are of one process: another gateway answers
//! TOKEN UNKNOWN, which the host takes for a reason to copy by itself.
//!
//! A token is 512 bytes, mostly random; it is looked up whole, so that knowing one's name is not enough to use it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::scsi::cdb::{Extent, field};
use crate::scsi::identity::Identity;
use crate::scsi::sense::{self, Sense};

/// A ROD token's length, bytes.
pub(super) const TOKEN: usize = 512;
/// ROD TYPE: point in time copy – change vulnerable.
pub(super) const CHANGE_VULNERABLE: u32 = 0x0080_0001;
/// ROD TYPE, in POPULATE TOKEN only: any kind of point in time copy.
pub(super) const ANY_POINT_IN_TIME: u32 = 0x0080_FFFF;
/// ROD TYPE: block device zero.
pub(super) const ZERO: u32 = 0xFFFF_0001;

/// Inactivity timeout where the initiator names none, seconds.
pub(super) const DEFAULT_TIMEOUT: u32 = 30;
/// The longest inactivity timeout, seconds.
pub(super) const LONGEST_TIMEOUT: u32 = 300;

/// One ROD.
#[derive(Debug)]
pub(super) struct Rod {
    pub(super) token: Box<[u8; TOKEN]>,
    /// The unit that has the data.
    pub(super) naa: [u8; 16],
    /// Its logical block, bytes.
    pub(super) block: u64,
    /// Where the data is, in the token's order.
    pub(super) ranges: Vec<Extent>,
    revoked: AtomicBool,
    timeout: Duration,
}

impl Rod {
    /// A ROD of these ranges, and its token; `None` without randomness.
    pub(super) fn new(
        identity: &Identity,
        block: u64,
        ranges: Vec<Extent>,
        timeout: u32,
    ) -> Option<Arc<Self>> {
        let bytes = ranges.iter().map(|range| range.len).sum();
        let mut secret = [0; 72];
        getrandom::fill(&mut secret).ok()?;
        let (id, secret) = secret.split_at(8);
        let mut token = Box::new([0; TOKEN]);
        let mut put = |at: usize, bytes: &[u8]| token[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &CHANGE_VULNERABLE.to_be_bytes());
        put(6, &((TOKEN - 8) as u16).to_be_bytes());
        // COPY MANAGER ROD TOKEN IDENTIFIER; CREATOR LOGICAL UNIT DESCRIPTOR, as in an EXTENDED COPY list.
        put(8, id);
        put(16, &[0xE4, 0, 0, 0, 0x01, 0x03, 0, 16]);
        put(24, &identity.naa);
        put(45, &(block as u32).to_be_bytes()[1..]);
        // NUMBER OF BYTES REPRESENTED, sixteen bytes; EXTENDED ROD TOKEN DATA is ours.
        put(56, &u64::to_be_bytes(bytes));
        put(128, secret);
        Some(Arc::new(Self {
            token,
            naa: identity.naa,
            block,
            ranges,
            revoked: AtomicBool::new(false),
            timeout: Duration::from_secs(timeout.into()),
        }))
    }

    /// Bytes represented.
    pub(super) fn bytes(&self) -> u64 {
        self.ranges.iter().map(|range| range.len).sum()
    }

    /// Whether the data is no longer that of the moment it was made.
    pub(super) fn revoked(&self) -> bool {
        self.revoked.load(Ordering::Acquire)
    }

    fn revoke(&self) {
        self.revoked.store(true, Ordering::Release);
    }

    fn id(token: &[u8; TOKEN]) -> u64 {
        u64::from_be_bytes(field(token, 8))
    }
}

/// The RODs of one unit that may still be good; they are revoked when the unit goes.
#[derive(Debug, Default)]
pub(in crate::scsi) struct Own(Vec<Arc<Rod>>);

impl Own {
    /// Watches over a ROD.
    pub(super) fn watch(&mut self, rod: &Arc<Rod>) {
        // What nobody else has any more was evicted, deleted or has expired.
        self.0.retain(|rod| !rod.revoked() && Arc::strong_count(rod) > 1);
        self.0.push(Arc::clone(rod));
    }

    /// True when there is nothing to watch over.
    pub(in crate::scsi) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// These bytes are about to be written.
    pub(in crate::scsi) fn written(&mut self, written: &Range<u64>) {
        self.0.retain(|rod| {
            let touched =
                |range: &Extent| range.offset < written.end && written.start < range.offset + range.len;
            if rod.ranges.iter().any(touched) {
                rod.revoke();
            }
            !rod.revoked()
        });
    }

    /// The unit's blocks are no longer what they were.
    pub(in crate::scsi) fn revoke_all(&mut self) {
        self.0.drain(..).for_each(|rod| rod.revoke());
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.revoke_all();
    }
}

/// The tokens of a process that may be used, by COPY MANAGER ROD TOKEN IDENTIFIER.
#[derive(Debug, Default)]
pub struct Rods(Mutex<BTreeMap<u64, (Arc<Rod>, Instant)>>);

/// The most tokens that are kept.
const MOST: usize = 1024;

impl Rods {
    /// Takes a token in. The one that was used longest ago gives way when there are too many.
    pub(super) fn insert(&self, rod: &Arc<Rod>, now: Instant) {
        let mut rods = self.lock();
        if rods.len() >= MOST {
            rods.retain(|_, (rod, used)| {
                !rod.revoked() && now.saturating_duration_since(*used) < rod.timeout
            });
        }
        if rods.len() >= MOST
            && let Some(oldest) = rods.iter().min_by_key(|(_, (_, used))| *used).map(|(id, _)| *id)
        {
            rods.remove(&oldest);
        }
        rods.insert(Rod::id(&rod.token), (Arc::clone(rod), now));
    }

    /// The ROD of a token, which is used now.
    pub(super) fn find(&self, token: &[u8; TOKEN], now: Instant) -> Result<Arc<Rod>, Sense> {
        let mut rods = self.lock();
        let id = Rod::id(token);
        let (rod, used) = rods.get_mut(&id).ok_or(sense::TOKEN_UNKNOWN)?;
        if *rod.token != *token {
            return Err(sense::TOKEN_CORRUPT);
        }
        let expired = now.saturating_duration_since(*used) >= rod.timeout;
        if rod.revoked() || expired {
            let why = if rod.revoked() { sense::TOKEN_REVOKED } else { sense::TOKEN_EXPIRED };
            rods.remove(&id);
            return Err(why);
        }
        *used = now;
        Ok(Arc::clone(rod))
    }

    /// The initiator needs the token no more (DEL_TKN).
    pub(super) fn delete(&self, rod: &Rod) {
        self.lock().remove(&Rod::id(&rod.token));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<u64, (Arc<Rod>, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rod(timeout: u32) -> Arc<Rod> {
        let ranges = vec![Extent { offset: 4096, len: 4096 }, Extent { offset: 65536, len: 512 }];
        Rod::new(&Identity::from_serial("disk"), 512, ranges, timeout).unwrap()
    }

    #[test]
    fn a_token_is_found_whole_or_not_at_all() {
        let (rods, now) = (Rods::default(), Instant::now());
        let rod = rod(10);
        rods.insert(&rod, now);
        assert!(Arc::ptr_eq(&rods.find(&rod.token, now).unwrap(), &rod));
        let mut forged = rod.token.clone();
        forged[140] ^= 1;
        assert_eq!(rods.find(&forged, now).unwrap_err(), sense::TOKEN_CORRUPT);
        forged[8] ^= 1;
        assert_eq!(rods.find(&forged, now).unwrap_err(), sense::TOKEN_UNKNOWN);
        rods.delete(&rod);
        assert_eq!(rods.find(&rod.token, now).unwrap_err(), sense::TOKEN_UNKNOWN);
    }

    #[test]
    fn a_token_expires_when_it_has_not_been_used_for_its_timeout() {
        // SPC-4, ROD token lifetime: each use starts the inactivity timeout anew.
        let (rods, start) = (Rods::default(), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        let rod = rod(10);
        rods.insert(&rod, start);
        assert!(rods.find(&rod.token, after(9)).is_ok());
        assert!(rods.find(&rod.token, after(18)).is_ok());
        assert_eq!(rods.find(&rod.token, after(28)).unwrap_err(), sense::TOKEN_EXPIRED);
        assert_eq!(rods.find(&rod.token, after(28)).unwrap_err(), sense::TOKEN_UNKNOWN);
    }

    #[test]
    fn a_write_to_a_range_revokes_and_one_beside_it_does_not() {
        for (offset, len, touches) in
            [(0, 4096, false), (0, 4097, true), (8191, 1, true), (8192, 512, false), (0, u64::MAX, true)]
        {
            let (rod, mut own) = (rod(10), Own::default());
            own.watch(&rod);
            own.written(&(offset..offset + len));
            assert_eq!(rod.revoked(), touches, "{offset}+{len}");
            drop(own);
            assert!(rod.revoked(), "its unit has gone");
        }
    }

    #[test]
    fn tokens_are_bounded_in_number() {
        let (rods, now) = (Rods::default(), Instant::now());
        let first = rod(10);
        rods.insert(&first, now);
        for index in 0..MOST as u64 {
            rods.insert(&rod(10), now + Duration::from_millis(index + 1));
        }
        assert_eq!(rods.lock().len(), MOST);
        assert_eq!(rods.find(&first.token, now).unwrap_err(), sense::TOKEN_UNKNOWN);
    }
}
