//! Carries a plan out. A step that fails takes along what depends on it, and nothing else.

use std::collections::BTreeMap;
use std::io;

use super::kernel::Kernel;
use super::object::Subject;
use super::plan::Plan;
use super::step::{Action, Step};

/// How it went.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Who has not got what was wanted, and why.
    pub failures: BTreeMap<Subject, String>,
    /// What stays different for now.
    pub notes: Vec<(Subject, String)>,
    /// Steps that were carried out.
    pub done: usize,
}

impl Outcome {
    /// Why this subject failed.
    pub fn failure(&self, subject: &Subject) -> Option<&str> {
        self.failures.get(subject).map(String::as_str)
    }

    /// Nothing failed.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }
}

/// Carries out every step whose subject, and whose needs, have not failed.
pub fn apply(kernel: &dyn Kernel, plan: Plan) -> Outcome {
    let mut outcome = Outcome { failures: plan.problems.into_iter().collect(), notes: plan.notes, done: 0 };
    for step in plan.steps {
        let needed = std::iter::once(&step.subject).chain(&step.needs);
        if let Some(failed) = needed.into_iter().find(|subject| outcome.failures.contains_key(subject)) {
            // A setting of something that is not there is nobody's loss.
            if *failed != step.subject && !matches!(step.subject, Subject::Setting(..)) {
                let reason = format!("{failed} has failed");
                outcome.failures.entry(step.subject.clone()).or_insert(reason);
            }
            continue;
        }
        match carry_out(kernel, &step.action) {
            Ok(()) => outcome.done += 1,
            Err(error) => {
                let reason = format!("{}: {}", step.action, explain(&step, &error));
                outcome.failures.insert(step.subject, reason);
            }
        }
    }
    outcome
}

fn carry_out(kernel: &dyn Kernel, action: &Action) -> io::Result<()> {
    tracing::trace!(%action, "configfs");
    let already = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
    let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match action {
        // Somebody else was faster with what we wanted.
        Action::Make(path) => kernel.make_folder(path).or_else(|error| except(error, already)),
        Action::Link { path, to } => kernel.link(path, to),
        Action::Remove(path) => kernel.remove_folder(path).or_else(|error| except(error, missing)),
        Action::Unlink(path) => kernel.unlink(path).or_else(|error| except(error, missing)),
        Action::Write { path, value, .. } => kernel.write(path, value),
    }
}

fn except(error: io::Error, harmless: impl Fn(&io::Error) -> bool) -> io::Result<()> {
    if harmless(&error) { Ok(()) } else { Err(error) }
}

/// What the errno means here, where that is not plain.
fn explain(step: &Step, error: &io::Error) -> String {
    let hint = match (&step.action, error.raw_os_error()) {
        (Action::Make(path), Some(libc::EADDRINUSE)) if path.contains("/np/") => {
            "; another program listens there"
        }
        (Action::Make(path), Some(libc::EADDRNOTAVAIL)) if path.contains("/np/") => {
            "; this machine does not have the address"
        }
        (Action::Make(path), Some(libc::EAGAIN | libc::EINTR)) if path.starts_with("core/") => {
            "; the events of TCMU devices are blocked or were reset"
        }
        (Action::Remove(_), Some(libc::EBUSY)) => "; something is still tied to it",
        (Action::Remove(_), Some(libc::ENOTEMPTY)) => "; something was added to it",
        (Action::Write { .. }, Some(libc::ESRCH)) => "; nobody listens to the events of TCMU devices",
        _ => "",
    };
    format!("{error}{hint}")
}
