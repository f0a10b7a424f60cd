//! Which TCMU device one means: the name that the kernel's module writes into `/sys/class/uio/uioN/name`.

use std::fmt;

/// What TCMU puts before the names of its devices; other drivers' devices lack it.
const PREFIX: &str = "tcm-user";

/// Identity of a TCMU device: `tcm-user/HBA/NAME` or `tcm-user/HBA/NAME/CONFIG`.
///
/// The number of the uio device says nothing: it is given out again to whichever device comes next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    /// N of the configfs folder `core/user_N`.
    pub hba: u32,
    /// Name of the backstore: a configfs folder, so that it holds no `/`.
    pub name: String,
    /// `dev_config`, free text of the device's owner; empty when there is none.
    pub config: String,
}

impl Identity {
    /// Reads the content of `uioN/name`; `None` when it is not a TCMU device's.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.strip_suffix('\n').unwrap_or(text);
        let mut parts = text.splitn(4, '/');
        let (prefix, hba, name) = (parts.next()?, parts.next()?, parts.next()?);
        let digits = !hba.is_empty() && hba.bytes().all(|byte| byte.is_ascii_digit());
        if prefix != PREFIX || !digits || name.is_empty() {
            return None;
        }
        let config = parts.next().unwrap_or_default();
        Some(Self { hba: hba.parse().ok()?, name: name.to_owned(), config: config.to_owned() })
    }

    /// True for the same backstore, whoever configured it.
    pub fn is_same_backstore(&self, other: &Self) -> bool {
        self.hba == other.hba && self.name == other.name
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}/{}/{}", self.hba, self.name)?;
        if self.config.is_empty() { Ok(()) } else { write!(f, "/{}", self.config) }
    }
}
