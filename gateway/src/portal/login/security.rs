//! The security stage: which proof is required, and how far it has come.
//!
//! Order of the keys (RFC 7143 section 12.1.3): `AuthMethod`; `CHAP_A`; then `CHAP_N` and `CHAP_R`, with `CHAP_I` and
//! `CHAP_C` when the target shall prove itself too. Anything out of this order fails the login.

use std::sync::Arc;

use super::{Auth, Status, is_login_key};
use crate::portal::chap::{Algorithm, Answer, Challenge, Chap};
use crate::portal::text;

/// The state of the stage.
#[derive(Debug)]
pub(super) struct Security {
    required: Auth,
    state: State,
    /// A method has been agreed on.
    chosen: bool,
    entropy: fn() -> Option<[u8; 33]>,
}

#[derive(Debug)]
enum State {
    /// No method agreed on yet.
    Start,
    /// CHAP agreed on.
    Chap,
    /// A challenge is out.
    Challenged(Challenge),
    /// Nothing more to prove.
    Passed,
}

impl Security {
    pub(super) fn new(entropy: fn() -> Option<[u8; 33]>) -> Self {
        Self { required: Auth::None, state: State::Start, chosen: false, entropy }
    }

    /// Sets what must be proved, from the leading request on.
    pub(super) fn require(&mut self, auth: Auth) {
        self.state = if auth == Auth::None { State::Passed } else { State::Start };
        self.required = auth;
    }

    pub(super) fn required(&self) -> &Auth {
        &self.required
    }

    /// Whether the stage may be left.
    pub(super) fn passed(&self) -> bool {
        matches!(self.state, State::Passed)
    }

    /// Takes the keys of one request.
    pub(super) fn step(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) -> Result<(), Status> {
        let value = |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        if let Some(methods) = value("AuthMethod") {
            self.choose_method(methods, reply)?;
        }
        if let Some(algorithms) = value("CHAP_A") {
            self.challenge(algorithms, reply)?;
        }
        if let Some(response) = value("CHAP_R") {
            let user = value("CHAP_N").ok_or(Status::MissingParameter)?;
            let challenge = match (value("CHAP_I"), value("CHAP_C")) {
                (Some(identifier), Some(challenge)) => Some((identifier, challenge)),
                (None, None) => None,
                _ => return Err(Status::MissingParameter),
            };
            self.verify(Answer { user, response, challenge }, reply)?;
        }
        // Operational keys do not belong here; their defaults stay (RFC 7143 section 6.3).
        for (name, _) in pairs.iter().filter(|(name, _)| !is_login_key(name)) {
            text::push(reply, name, if name.contains(['-', '#']) { "NotUnderstood" } else { "Reject" });
        }
        Ok(())
    }

    fn choose_method(&mut self, methods: &str, reply: &mut Vec<u8>) -> Result<(), Status> {
        // Section 6.2: nothing is negotiated twice in one login.
        if std::mem::replace(&mut self.chosen, true) {
            return Err(Status::InitiatorError);
        }
        let offered = |method| methods.split(',').any(|item| item == method);
        match (&self.required, &self.state) {
            (Auth::None, State::Passed) if offered("None") => text::push(reply, "AuthMethod", "None"),
            (Auth::Chap(_), State::Start) if offered("CHAP") => {
                text::push(reply, "AuthMethod", "CHAP");
                self.state = State::Chap;
            }
            _ => return Err(Status::AuthenticationFailure),
        }
        Ok(())
    }

    fn challenge(&mut self, algorithms: &str, reply: &mut Vec<u8>) -> Result<(), Status> {
        let chap =
            self.chap().filter(|_| matches!(self.state, State::Chap)).ok_or(Status::AuthenticationFailure)?;
        let algorithm =
            Algorithm::choose(algorithms, &chap.algorithms).ok_or(Status::AuthenticationFailure)?;
        let challenge = Challenge::new(algorithm, &(self.entropy)().ok_or(Status::TargetError)?);
        text::push(reply, "CHAP_A", algorithm.number());
        text::push(reply, "CHAP_I", challenge.identifier());
        text::push(reply, "CHAP_C", text::encode_hex(challenge.bytes()));
        self.state = State::Challenged(challenge);
        Ok(())
    }

    fn verify(&mut self, answer: Answer<'_>, reply: &mut Vec<u8>) -> Result<(), Status> {
        let chap = self.chap().ok_or(Status::AuthenticationFailure)?;
        // A challenge is good for one answer.
        let State::Challenged(challenge) = std::mem::replace(&mut self.state, State::Chap) else {
            return Err(Status::AuthenticationFailure);
        };
        let proof = challenge.verify(&chap, answer).map_err(|error| {
            tracing::debug!(%error, "CHAP failed");
            Status::AuthenticationFailure
        })?;
        if let Some(proof) = proof {
            text::push(reply, "CHAP_N", proof.user);
            text::push(reply, "CHAP_R", text::encode_hex(&proof.response));
        }
        self.state = State::Passed;
        Ok(())
    }

    fn chap(&self) -> Option<Arc<Chap>> {
        match &self.required {
            Auth::Chap(chap) => Some(Arc::clone(chap)),
            Auth::None => None,
        }
    }
}
