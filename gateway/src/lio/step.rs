//! One change of the kernel's state.

use std::fmt;

use super::object::Subject;

/// A change, whom it serves and who must have succeeded before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What is done.
    pub action: Action,
    /// Who suffers when it fails.
    pub subject: Subject,
    /// Whose failure makes it pointless.
    pub needs: Vec<Subject>,
}

/// What can be done. Paths as in [`Kernel`](super::Kernel).
#[derive(Clone, PartialEq, Eq)]
pub enum Action {
    /// Makes an object.
    Make(String),
    /// Removes one.
    Remove(String),
    /// Ties an object to another.
    Link {
        /// The tie.
        path: String,
        /// The other.
        to: String,
    },
    /// Unties it.
    Unlink(String),
    /// Sets an attribute.
    Write {
        /// The attribute.
        path: String,
        /// Its value.
        value: String,
        /// The value is a secret.
        secret: bool,
    },
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(path) => write!(f, "mkdir {path}"),
            Self::Remove(path) => write!(f, "rmdir {path}"),
            Self::Link { path, to } => write!(f, "ln -s {to} {path}"),
            Self::Unlink(path) => write!(f, "rm {path}"),
            Self::Write { path, secret: true, .. } => write!(f, "echo … > {path}"),
            Self::Write { path, value, .. } => write!(f, "echo {value} > {path}"),
        }
    }
}

/// Secrets stay out of logs.
impl fmt::Debug for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
