//! What an operation is to do, and the note of it that a store keeps while it is not done.

use super::diagnostic::SelfTest;
use crate::scsi::sense::{self, Sense};

/// The kinds of operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// SANITIZE.
    Sanitize {
        /// AUSE: the failure of this sanitize may be left by EXIT FAILURE MODE.
        unrestricted: bool,
    },
    /// FORMAT UNIT.
    Format,
    /// SEND DIAGNOSTIC.
    SelfTest(SelfTest),
}

impl Kind {
    /// Whether it changes the medium, so that it must be known to whoever opens the store next.
    pub(super) fn is_noted(&self) -> bool {
        !matches!(self, Self::SelfTest(_))
    }

    /// Whether other commands wait meanwhile.
    pub(super) fn occupies(&self) -> bool {
        match self {
            Self::Sanitize { .. } | Self::Format => true,
            Self::SelfTest(test) => test.foreground(),
        }
    }

    /// The sense data while it runs (SBC-4 and SPC-4, pollable sense data).
    pub(super) fn in_progress(&self) -> Sense {
        match self {
            Self::Sanitize { .. } => sense::SANITIZE_IN_PROGRESS,
            Self::Format => sense::FORMAT_IN_PROGRESS,
            Self::SelfTest(test) if test.foreground() => sense::SELF_TEST_IN_PROGRESS,
            Self::SelfTest(_) => Sense { key: sense::key::NO_SENSE, ..sense::SELF_TEST_IN_PROGRESS },
        }
    }

    /// The sense data when it has failed.
    pub(super) fn failure(&self) -> Sense {
        match self {
            Self::Sanitize { .. } => sense::SANITIZE_COMMAND_FAILED,
            Self::Format => sense::FORMAT_COMMAND_FAILED,
            Self::SelfTest(_) => sense::LOGICAL_UNIT_FAILED_SELF_TEST,
        }
    }
}

/// An operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) kind: Kind,
    /// How often and with what the medium is written; `None`: it is zeroed once, and deallocated where it can be.
    pub(super) overwrite: Option<Overwrite>,
}

/// OVERWRITE (SBC-4).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Overwrite {
    /// One logical block.
    pub(super) block: Vec<u8>,
    /// Passes, 1 to 31.
    pub(super) count: u8,
    /// Every other pass writes the complement.
    pub(super) invert: bool,
}

impl Plan {
    /// Passes over the medium.
    pub(super) fn passes(&self) -> u32 {
        self.overwrite.as_ref().map_or(1, |overwrite| overwrite.count.into())
    }

    /// The block that a pass writes; `None` where it zeroes.
    pub(super) fn block(&self, pass: u32) -> Option<Vec<u8>> {
        let overwrite = self.overwrite.as_ref()?;
        let invert = overwrite.invert && pass % 2 == 1;
        Some(overwrite.block.iter().map(|byte| if invert { !byte } else { *byte }).collect())
    }

    /// The note: version, kind, flags, passes, then the block.
    pub(super) fn encode(&self, failed: bool) -> Vec<u8> {
        let (kind, unrestricted) = match self.kind {
            Kind::Sanitize { unrestricted } => (NOTED_SANITIZE, unrestricted),
            Kind::Format | Kind::SelfTest(_) => (NOTED_FORMAT, false),
        };
        let overwrite = self.overwrite.as_ref();
        let invert = overwrite.is_some_and(|overwrite| overwrite.invert);
        let flags = u8::from(failed) | u8::from(unrestricted) << 1 | u8::from(invert) << 2;
        let mut note = vec![NOTE_VERSION, kind, flags, overwrite.map_or(0, |overwrite| overwrite.count)];
        note.extend_from_slice(overwrite.map_or(&[], |overwrite| &overwrite.block));
        note
    }

    /// What a note says, and whether the operation had failed. A note that cannot be read is a sanitize that failed: the
    /// medium holds what somebody wanted gone.
    pub(super) fn decode(note: &[u8]) -> Option<(Self, bool)> {
        let unreadable = Self { kind: Kind::Sanitize { unrestricted: true }, overwrite: None };
        let (plan, failed) = match note {
            [] => return None,
            [NOTE_VERSION, kind @ (NOTED_SANITIZE | NOTED_FORMAT), flags, count @ 0..32, block @ ..] => {
                let kind = match *kind {
                    NOTED_SANITIZE => Kind::Sanitize { unrestricted: flags & 2 != 0 },
                    _ => Kind::Format,
                };
                let overwrite = (*count > 0 && matches!(block.len(), 512 | 4096)).then(|| Overwrite {
                    block: block.to_vec(),
                    count: *count,
                    invert: flags & 4 != 0,
                });
                (Self { kind, overwrite }, flags & 1 != 0)
            }
            _ => (unreadable, true),
        };
        Some((plan, failed))
    }
}

const NOTE_VERSION: u8 = 1;
const NOTED_SANITIZE: u8 = 1;
const NOTED_FORMAT: u8 = 2;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_note_says_what_was_noted(
            sanitize in any::<bool>(),
            unrestricted in any::<bool>(),
            failed in any::<bool>(),
            overwrite in prop::option::of((prop_oneof![Just(512_usize), Just(4096)], 1..32_u8, any::<bool>())),
        ) {
            let kind = if sanitize { Kind::Sanitize { unrestricted } } else { Kind::Format };
            let overwrite = overwrite.map(|(len, count, invert)| Overwrite { block: vec![7; len], count, invert });
            let plan = Plan { kind, overwrite };
            prop_assert_eq!(Plan::decode(&plan.encode(failed)), Some((plan, failed)));
        }

        #[test]
        fn whatever_a_store_brings_back_is_read(note in prop::collection::vec(any::<u8>(), 0..40)) {
            prop_assert_eq!(Plan::decode(&note).is_none(), note.is_empty());
        }
    }

    #[test]
    fn inversion_begins_with_the_second_pass() {
        // SBC-4, OVERWRITE service action, INVERT.
        let overwrite = Overwrite { block: vec![0xA5; 512], count: 3, invert: true };
        let plan = Plan { kind: Kind::Format, overwrite: Some(overwrite) };
        let firsts: Vec<_> = (0..3).filter_map(|pass| plan.block(pass)).map(|block| block[0]).collect();
        assert_eq!(firsts, [0xA5, 0x5A, 0xA5]);
    }
}
