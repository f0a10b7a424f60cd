//! Which commands are carried out through a target port that is not active (SPC-4, the clauses of the standby, the
//! unavailable and the transitioning target port asymmetric access state).

/// Through which target ports a command is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paths {
    /// Active ones, optimized or not.
    Active,
    /// Those in standby too.
    Standby,
    /// All but those in transition.
    Settled,
    /// All.
    Any,
    /// All for the modes of the echo buffer, else active ones.
    EchoBuffer,
}

impl Paths {
    /// By operation code and service action.
    pub(super) const fn of_command(code: u8, action: u8) -> Self {
        match (code, action) {
            // REQUEST SENSE, INQUIRY, REPORT LUNS, REPORT TARGET PORT GROUPS.
            (0x03 | 0x12 | 0xA0, _) | (0xA3, 0x0A) => Self::Any,
            // SET TARGET PORT GROUPS.
            (0xA4, 0x0A) => Self::Settled,
            // READ BUFFER, WRITE BUFFER.
            (0x3C | 0x3B, _) => Self::EchoBuffer,
            // MODE SELECT, MODE SENSE, RECEIVE DIAGNOSTIC RESULTS, SEND DIAGNOSTIC, LOG SELECT, LOG SENSE, PERSISTENT
            // RESERVE IN and OUT.
            (0x15 | 0x1A | 0x55 | 0x5A | 0x1C | 0x1D | 0x4C | 0x4D | 0x5E | 0x5F, _) => Self::Standby,
            // REPORT SUPPORTED OPERATION CODES and TASK MANAGEMENT FUNCTIONS: others may be supported in standby.
            (0xA3, 0x0C | 0x0D) => Self::Standby,
            _ => Self::Active,
        }
    }

    /// The same for a whole CDB.
    pub(crate) fn of(self, cdb: &[u8]) -> Self {
        // MODE: echo buffer, or its descriptor.
        let echo = matches!(cdb.get(1).map(|byte| byte & 0x1F), Some(0x0A | 0x0B));
        match self {
            Self::EchoBuffer if echo => Self::Any,
            Self::EchoBuffer => Self::Active,
            other => other,
        }
    }
}
