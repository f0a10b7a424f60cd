//! What the unit does on its own account, without a command: SANITIZE, FORMAT UNIT, self-tests (SBC-4 and SPC-4).
//!
//! One *operation* at a time. The lane asks for its next requests ([`State::next`]), carries them out and brings the
//! results back ([`State::finished`]), beside all commands. A command without IMMED waits for the end as one of its
//! requests ([`Io::Background`]), one with IMMED for the note; the operation does not depend on it: SANITIZE and FORMAT UNIT outlive the command, its
//! nexus, task management and resets (SBC-4, sanitize operations), a self-test ends with a reset.
//!
//! A restart of the gateway interrupts an operation. What was asked for is noted at the store before the medium is first
//! touched ([`plan`]), so whoever opens the store next begins the operation anew: what must not be read stays out
//! of reach, and no person is needed. A failed sanitize is noted too.
//!
//! While a sanitize or a format runs, nothing but questions about the unit is answered, so it holds the whole disk alone.

mod diagnostic;
mod format;
mod plan;
mod sanitize;

use std::ops::Range;

use smallvec::{SmallVec, smallvec};

pub(super) use self::diagnostic::{SelfTests, receive_results, send};
pub(super) use self::format::format_unit;
use self::plan::{Kind, Plan};
pub(super) use self::sanitize::{block_erase, exit_failure_mode, exited, overwrite};
use super::cdb::Request;
use super::device::{Answer, Device, Then, good};
use super::limits;
use super::opcode::{Class, Medium, Opcode};
use super::sense::{self, Sense};
use super::step::{Finished, Io, Memory, Step};
use crate::disk::Error;

/// The next requests of the operation.
#[derive(Debug)]
pub struct Background {
    /// To be carried out together.
    pub io: SmallVec<[Io; 1]>,
    /// Bytes that the operation holds alone from this request to its last.
    pub exclusive: Option<Range<u64>>,
}

/// How far an operation has to come for a command that waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// Whoever opens the store next knows of it.
    Noted,
    /// It is over.
    End,
}

/// The unit's operation, if one runs, and what the last one has left.
#[derive(Debug, Default)]
pub(super) struct State {
    running: Option<Operation>,
    /// An operation that failed: nobody reads the medium until another one succeeds.
    failed: Option<Plan>,
    /// How the last operation ended, for the commands that wait for it.
    outcome: Option<Sense>,
    /// The lane has requests, and has not brought their results.
    outstanding: bool,
    /// Those are of an operation that has ended meanwhile.
    stale: bool,
    pub(super) tests: SelfTests,
}

#[derive(Debug)]
struct Operation {
    plan: Plan,
    stage: Stage,
    /// Passes over the medium that are done.
    pass: u32,
    /// Bytes of this pass that are done; of the last one until the end.
    position: u64,
    /// Bytes of the piece that the store has.
    piece: u64,
}

/// Where an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Note,
    Work,
    Flush,
    Forget,
    /// It has failed, which is being noted.
    Fail,
}

impl State {
    /// What a store remembers of an operation that a restart has interrupted, or that failed.
    pub(super) fn recalled(note: Option<&[u8]>) -> Self {
        let mut state = Self::default();
        match note.and_then(Plan::decode) {
            Some((plan, false)) => state.start(plan),
            Some((plan, true)) => state.failed = Some(plan),
            None => {}
        }
        state
    }

    fn start(&mut self, plan: Plan) {
        let stage = if plan.kind.is_noted() { Stage::Note } else { Stage::Work };
        self.outcome = None;
        self.running = Some(Operation { plan, stage, pass: 0, position: 0, piece: 0 });
    }

    /// Whether an operation runs.
    pub(super) fn runs(&self) -> bool {
        self.running.is_some()
    }

    /// Whether an operation runs that whoever opens the store next would not know of.
    pub(super) fn owes_note(&self) -> bool {
        self.running.as_ref().is_some_and(|operation| operation.stage == Stage::Note)
    }

    /// Whether what a command waits for has come.
    pub(super) fn reached(&self, milestone: Milestone) -> bool {
        match (&self.running, milestone) {
            (None, _) => true,
            (Some(_), Milestone::End) => false,
            // One that fails from the start may never have been noted: it is answered by how that ends.
            (Some(operation), Milestone::Noted) => !matches!(operation.stage, Stage::Note | Stage::Fail),
        }
    }

    /// Whether such a self-test runs.
    fn runs_test(&self, which: impl Fn(diagnostic::SelfTest) -> bool) -> bool {
        let kind = self.running.as_ref().map(|operation| &operation.plan.kind);
        matches!(kind, Some(Kind::SelfTest(test)) if which(*test))
    }

    /// Why this command has to wait, or cannot be carried out at all (SBC-4, commands while a sanitize or format operation
    /// is in progress, and after it failed): only questions about the unit are answered then.
    pub(super) fn admit(&self, row: &Opcode, size: u64) -> Result<(), Sense> {
        if row.medium == Medium::Unused && row.class == Class::Query {
            return Ok(());
        }
        if let Some(sense) = self.holds_up(size) {
            return Err(sense);
        }
        match &self.failed {
            Some(_) if matches!(row.code, FORMAT_UNIT | SANITIZE) => Ok(()),
            Some(plan) => Err(plan.kind.failure()),
            None => Ok(()),
        }
    }

    /// Why a command that has begun may not go on to its next requests.
    pub(super) fn holds_up(&self, size: u64) -> Option<Sense> {
        let operation = self.running.as_ref().filter(|operation| operation.plan.kind.occupies())?;
        Some(operation.sense(size))
    }

    /// What REQUEST SENSE has to say of it.
    pub(super) fn pollable(&self, size: u64) -> Option<Sense> {
        let running = self.running.as_ref().map(|operation| operation.sense(size));
        running.or_else(|| self.failed.as_ref().map(|plan| plan.kind.failure()))
    }

    /// The next requests; `None` when there is nothing to do, or the lane still has the last ones.
    pub(super) fn next(&mut self, size: u64, block: u64, thin: bool) -> Option<Background> {
        let operation = self.running.as_mut().filter(|_| !self.outstanding)?;
        self.outstanding = true;
        // The note touches nothing, and who has IMMED waits for it: not for writes in flight.
        let touches = operation.plan.kind.is_noted() && operation.stage == Stage::Work;
        let exclusive = touches.then_some(0..u64::MAX);
        Some(Background { io: operation.requests(size, block, thin), exclusive })
    }

    /// The requests have come back.
    pub(super) fn finished(&mut self, results: &[Finished], size: u64) {
        self.outstanding = false;
        if std::mem::take(&mut self.stale) {
            return;
        }
        let Some(operation) = &mut self.running else { return };
        let failure = results.iter().find_map(|finished| finished.result.as_ref().err());
        let progress = match failure {
            // The medium has become smaller under the piece: what is left of it is done anew.
            Some(_) if operation.is_cut(size) => operation.begin_again(size),
            Some(error) => operation.fail(error),
            None => operation.advance(size),
        };
        match progress {
            Progress::More => {}
            Progress::Done => self.end(None),
            Progress::Failed => {
                let failure = operation.plan.kind.failure();
                self.end(Some(failure));
            }
        }
    }

    /// A lane that stops takes nothing up any more. What waits for the operation is answered, and the medium stays out of
    /// reach; whoever opens the store next begins it anew.
    pub(super) fn interrupt(&mut self, size: u64) {
        let Some(operation) = &self.running else { return };
        let sense = operation.sense(size);
        self.stale = self.outstanding;
        self.end(Some(sense));
    }

    fn end(&mut self, outcome: Option<Sense>) {
        let Some(Operation { plan, .. }) = self.running.take() else { return };
        self.outcome = outcome;
        self.tests.ended(&plan.kind, outcome.map_or(Ok(()), Err));
        if plan.kind.is_noted() {
            self.failed = outcome.map(|_| plan);
        }
    }

    /// Ends a self-test before its time; what else runs goes on. False when none runs.
    pub(super) fn abort_test(&mut self, why: Sense) -> bool {
        match &self.running {
            Some(operation) if !operation.plan.kind.is_noted() => {
                self.tests.aborted(&operation.plan.kind, why);
                self.stale = self.outstanding;
                self.end(Some(why));
                true
            }
            _ => false,
        }
    }

    /// The command that has waited for the operation was aborted: a foreground test ends with it (SPC-4).
    pub(super) fn abandoned(&mut self) {
        if self.runs_test(diagnostic::SelfTest::foreground) {
            self.abort_test(sense::SELF_TEST_IN_PROGRESS);
        }
    }
}

/// How an operation goes on.
enum Progress {
    More,
    Done,
    Failed,
}

/// Operation codes that a failed operation leaves open.
const FORMAT_UNIT: u8 = 0x04;
const SANITIZE: u8 = 0x48;

impl Operation {
    /// The sense data while it runs.
    fn sense(&self, size: u64) -> Sense {
        self.plan.kind.in_progress().with_progress(self.progress(size))
    }

    /// PROGRESS INDICATION: 65536ths.
    fn progress(&self, size: u64) -> u16 {
        let total = u128::from(size.max(1)) * u128::from(self.plan.passes().max(1));
        let done = u128::from(self.pass) * u128::from(size) + u128::from(self.position);
        u16::try_from(done * 65536 / total).unwrap_or(u16::MAX)
    }

    fn requests(&mut self, size: u64, block: u64, thin: bool) -> SmallVec<[Io; 1]> {
        self.position = self.position.min(size);
        self.piece = self.stride(size).min(size - self.position);
        match self.stage {
            Stage::Note => smallvec![Io::Note(Some(self.plan.encode(false)))],
            Stage::Work => self.piece(size, block, thin),
            Stage::Flush => smallvec![Io::Flush],
            Stage::Forget => smallvec![Io::Note(None)],
            Stage::Fail => smallvec![Io::Note(Some(self.plan.encode(true)))],
        }
    }

    fn piece(&self, size: u64, block: u64, thin: bool) -> SmallVec<[Io; 1]> {
        let offset = self.position.min(size.saturating_sub(block));
        let left = size.saturating_sub(offset);
        match &self.plan.kind {
            Kind::SelfTest(test) if !test.extended() => diagnostic::probes(size, block),
            Kind::SelfTest(_) => {
                let into = Memory::Owned(vec![0; left.min(limits::SCRATCH) as usize]);
                smallvec![Io::Read { offset, into }]
            }
            _ => match self.plan.block(self.pass) {
                Some(pattern) => {
                    smallvec![Io::WriteSame { offset, len: left.min(limits::FILL), pattern, fua: true }]
                }
                None => {
                    smallvec![Io::WriteZeroes { offset, len: left.min(limits::ERASE), deallocate: thin }]
                }
            },
        }
    }

    /// Whether the piece that the store has reaches behind the end of the medium.
    fn is_cut(&self, size: u64) -> bool {
        self.stage == Stage::Work && self.position + self.piece > size
    }

    /// Goes on from the piece that has been cut, within the medium as it is now.
    fn begin_again(&mut self, size: u64) -> Progress {
        self.piece = 0;
        self.position = self.position.min(size);
        self.advance(size)
    }

    /// Bytes that a whole piece covers.
    fn stride(&self, size: u64) -> u64 {
        match &self.plan.kind {
            Kind::SelfTest(test) if !test.extended() => size,
            Kind::SelfTest(_) => limits::SCRATCH,
            _ if self.plan.block(self.pass).is_some() => limits::FILL,
            _ => limits::ERASE,
        }
    }

    fn advance(&mut self, size: u64) -> Progress {
        self.stage = match self.stage {
            Stage::Note => Stage::Work,
            Stage::Work => {
                self.position += self.piece;
                if self.position < size {
                    Stage::Work
                } else if self.pass + 1 < self.plan.passes() {
                    (self.pass, self.position) = (self.pass + 1, 0);
                    Stage::Work
                } else {
                    Stage::Flush
                }
            }
            // The medium has grown meanwhile: every block is to be as the operation leaves it. What is new has held nothing
            // before, so the passes that are left are enough for it.
            Stage::Flush if self.plan.kind.is_noted() && self.position < size => Stage::Work,
            Stage::Flush if self.plan.kind.is_noted() => Stage::Forget,
            Stage::Flush | Stage::Forget => return Progress::Done,
            Stage::Fail => return Progress::Failed,
        };
        Progress::More
    }

    /// A note that cannot be erased is a failure too: the operation would begin anew over later data.
    fn fail(&mut self, error: &Error) -> Progress {
        self.stage = match (self.stage, error) {
            // A store that keeps no notes has nothing that outlives a restart.
            (Stage::Note, Error::Unsupported) => Stage::Work,
            (Stage::Forget, Error::Unsupported) => return Progress::Done,
            (Stage::Fail, _) => return Progress::Failed,
            _ if self.plan.kind.is_noted() => Stage::Fail,
            _ => return Progress::Failed,
        };
        Progress::More
    }
}

/// Begins an operation for a command, which is answered at its end; with IMMED at once, or when whoever opens the store next
/// would know of it: what is answered GOOD outlives a crash.
fn begin(device: &mut Device, plan: Plan, immediate: bool, transfer: usize) -> Answer {
    let noted = plan.kind.is_noted();
    device.background.start(plan);
    let milestone = match (immediate, noted) {
        (true, false) => return good(transfer),
        (true, true) => Milestone::Noted,
        (false, _) => Milestone::End,
    };
    let then = Then::Background { transfer };
    Ok(Step::Io { io: smallvec![Io::Background(milestone)], exclusive: None, then })
}

/// The operation has come as far as the command has waited for, or it is over.
pub(super) fn resume(device: &Device, transfer: usize) -> Answer {
    match device.background.outcome {
        Some(sense) => Err(sense),
        None => good(transfer),
    }
}
