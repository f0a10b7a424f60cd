//! The login phase as a state machine (RFC 7143 sections 6.3, 7 and 11.12): requests in, responses out, no I/O.
//!
//! Vocabulary: a *stage* is security (0), operational (1) or full feature (3); the *leading* request is the first one,
//! whose keys say who wants what. Until the end of the login a peer holds at most [`MAX_TEXT`] bytes of text here, and
//! every failure is final: the connection is closed after the response.

mod security;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::keys::{KeyError, Negotiated, Negotiation, is_login_key, is_security_key};
use super::pdu::{LoginRequest, LoginResponse};
use super::target::{Auth, Directory, Parameters, Redirect, Target};
use super::text;
use crate::names;
use security::Security;

/// Longest data segment of a login PDU (the default MaxRecvDataSegmentLength, which governs logins).
pub const MAX_SEGMENT: usize = 8192;
/// Longest text of one exchange spread over several PDUs with the C bit.
pub const MAX_TEXT: usize = 16 * 1024;
/// Most requests in one login.
const MAX_REQUESTS: u32 = 64;

const SECURITY: u8 = 0;
const OPERATIONAL: u8 = 1;
const FULL_FEATURE: u8 = 3;

/// Why a login failed: the status class and detail of RFC 7143 section 11.13.5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u16)]
#[expect(missing_docs, reason = "the names are the standard's")]
pub enum Status {
    TargetMovedTemporarily = 0x0101,
    TargetMovedPermanently = 0x0102,
    InitiatorError = 0x0200,
    AuthenticationFailure = 0x0201,
    AuthorizationFailure = 0x0202,
    NotFound = 0x0203,
    UnsupportedVersion = 0x0205,
    TooManyConnections = 0x0206,
    MissingParameter = 0x0207,
    SessionTypeNotSupported = 0x0209,
    SessionDoesNotExist = 0x020a,
    InvalidDuringLogin = 0x020b,
    TargetError = 0x0300,
    ServiceUnavailable = 0x0301,
    OutOfResources = 0x0302,
}

/// One response with its text.
#[derive(Debug, PartialEq, Eq)]
pub struct Reply {
    /// The PDU.
    pub header: LoginResponse,
    /// Its data segment.
    pub text: Vec<u8>,
}

/// What a request led to.
#[derive(Debug)]
pub enum Progress {
    /// Send this and wait for the next request.
    Continue(Reply),
    /// The initiator may enter the full feature phase; the reply still lacks its TSIH.
    Admitted(Reply, Box<Admitted>),
    /// Send this and close.
    Failed(Reply, Status),
}

/// What a session is for.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// Discovery only.
    Discovery,
    /// SCSI with this target.
    Normal(Arc<Target>),
}

/// A login that succeeded.
#[derive(Debug)]
pub struct Admitted {
    /// Normalised initiator name.
    pub initiator: String,
    /// Session id, the initiator's part.
    pub isid: [u8; 6],
    /// Session id, the target's part as the initiator gave it: 0 for a new session.
    pub tsih: u16,
    /// Connection id.
    pub cid: u16,
    /// Discovery or normal.
    pub purpose: Purpose,
    /// The proof that was asked for.
    pub auth: Auth,
    /// What was agreed.
    pub negotiated: Negotiated,
    /// CmdSN of the first command to come.
    pub exp_cmd_sn: u32,
    /// StatSN of the next response.
    pub stat_sn: u32,
}

/// Who wants what, known after the leading request.
#[derive(Debug)]
struct Identity {
    initiator: String,
    purpose: Purpose,
}

impl Identity {
    /// Whether a later request says something else than the leading one did (section 13: these keys are the leading one's).
    fn contradicted(&self, pairs: &[(&str, &str)]) -> bool {
        pairs.iter().any(|(key, value)| match (*key, &self.purpose) {
            ("InitiatorName", _) => names::normalize(value).as_ref() != Ok(&self.initiator),
            ("TargetName", Purpose::Normal(target)) => names::normalize(value).as_ref() != Ok(&target.name),
            ("SessionType", Purpose::Normal(_)) => *value != "Normal",
            ("SessionType", Purpose::Discovery) => *value != "Discovery",
            _ => false,
        })
    }
}

/// A login under way.
#[derive(Debug)]
pub struct Login {
    directory: Arc<Directory>,
    stage: u8,
    leading: Option<LoginRequest>,
    identity: Option<Identity>,
    security: Security,
    negotiation: Negotiation,
    text: Vec<u8>,
    requests: u32,
    stat_sn: u32,
}

impl Login {
    /// A login against a snapshot of what is served. `entropy` makes CHAP challenges.
    pub fn new(directory: Arc<Directory>, entropy: fn() -> Option<[u8; 33]>) -> Self {
        Self {
            directory,
            stage: SECURITY,
            leading: None,
            identity: None,
            security: Security::new(entropy),
            negotiation: Negotiation::new(Parameters::default()),
            text: Vec::new(),
            requests: 0,
            stat_sn: 1,
        }
    }

    /// The initiator's name, once it has given one.
    pub fn initiator(&self) -> Option<&str> {
        self.identity.as_ref().map(|identity| identity.initiator.as_str())
    }

    /// Takes one request with its data segment.
    pub fn request(&mut self, request: &LoginRequest, segment: &[u8]) -> Progress {
        let mut reply = Vec::new();
        match self.step(request, segment, &mut reply) {
            Ok(None) => Progress::Continue(self.reply(request, false, reply)),
            Ok(Some(next)) if next == FULL_FEATURE => match self.admit(request) {
                Ok(admitted) => {
                    let reply = self.reply(request, true, reply);
                    Progress::Admitted(reply, Box::new(Admitted { stat_sn: self.stat_sn, ..admitted }))
                }
                Err(status) => self.fail(request, status),
            },
            Ok(Some(next)) => {
                let reply = self.reply(request, true, reply);
                self.stage = next;
                Progress::Continue(reply)
            }
            Err(status) => self.fail(request, status),
        }
    }

    /// The response that ends a login which cannot go on, also after [`Progress::Admitted`].
    pub fn fail(&mut self, request: &LoginRequest, status: Status) -> Progress {
        let mut text = Vec::new();
        if matches!(status, Status::TargetMovedTemporarily | Status::TargetMovedPermanently)
            && let Some(redirect) = self.redirect()
        {
            // Section 13.8: without a portal group tag here.
            text::push(&mut text, "TargetAddress", redirect.address);
        }
        let mut reply = self.reply(request, false, text);
        let [class, detail] = (status as u16).to_be_bytes();
        (reply.header.status_class, reply.header.status_detail) = (class, detail);
        Progress::Failed(reply, status)
    }

    /// The response to a PDU that is no login request, once a login has begun (RFC 7143 section 6.3).
    pub fn interrupted(&mut self) -> Option<Reply> {
        let request = self.leading?;
        match self.fail(&request, Status::InvalidDuringLogin) {
            Progress::Failed(reply, _) => Some(reply),
            _ => None,
        }
    }

    fn redirect(&self) -> Option<Redirect> {
        match &self.identity.as_ref()?.purpose {
            Purpose::Normal(target) => self.directory.redirect(&target.name),
            Purpose::Discovery => None,
        }
    }

    fn reply(&mut self, request: &LoginRequest, transit: bool, text: Vec<u8>) -> Reply {
        let header = LoginResponse {
            transit,
            more: false,
            stage: request.stage,
            next_stage: if transit { request.next_stage } else { 0 },
            version_max: 0,
            version_active: 0,
            isid: request.isid,
            tsih: request.tsih,
            task_tag: request.task_tag,
            stat_sn: self.stat_sn,
            exp_cmd_sn: request.cmd_sn,
            max_cmd_sn: request.cmd_sn,
            status_class: 0,
            status_detail: 0,
        };
        self.stat_sn = self.stat_sn.wrapping_add(1);
        Reply { header, text }
    }

    /// `Some(stage)`: the stage is left for that one.
    fn step(
        &mut self,
        request: &LoginRequest,
        segment: &[u8],
        reply: &mut Vec<u8>,
    ) -> Result<Option<u8>, Status> {
        self.check(request)?;
        if self.text.len() + segment.len() > MAX_TEXT {
            return Err(Status::OutOfResources);
        }
        self.text.extend_from_slice(segment);
        if request.more {
            return Ok(None);
        }
        let taken = std::mem::take(&mut self.text);
        let pairs = text::parse(&taken).map_err(|_malformed| Status::InitiatorError)?;
        match &self.identity {
            None => self.identify(&pairs, reply)?,
            Some(identity) if identity.contradicted(&pairs) => return Err(Status::InitiatorError),
            Some(_) => {}
        }
        let done = if self.stage == SECURITY {
            self.security.step(&pairs, reply)?;
            self.security.passed()
        } else {
            self.negotiate(&pairs, reply)?;
            true
        };
        // The initiator takes no more than the default MaxRecvDataSegmentLength before the login's end (section 13.12), and
        // no login needs as much.
        if reply.len() > MAX_SEGMENT {
            return Err(Status::InitiatorError);
        }
        if !request.transit || !done {
            return Ok(None);
        }
        Ok(Some(request.next_stage))
    }

    /// Fields of the header, before any text is looked at.
    fn check(&mut self, request: &LoginRequest) -> Result<(), Status> {
        self.requests += 1;
        if request.version_min > 0 {
            return Err(Status::UnsupportedVersion);
        }
        match &self.leading {
            None => {
                if !matches!(request.stage, SECURITY | OPERATIONAL) {
                    return Err(Status::InvalidDuringLogin);
                }
                self.stage = request.stage;
                self.leading = Some(*request);
            }
            Some(first) => {
                let same =
                    first.isid == request.isid && first.tsih == request.tsih && first.cid == request.cid;
                if !same || request.stage != self.stage {
                    return Err(Status::InvalidDuringLogin);
                }
            }
        }
        let forward =
            matches!(request.next_stage, OPERATIONAL | FULL_FEATURE) && request.next_stage > self.stage;
        if self.requests > MAX_REQUESTS || request.transit && (request.more || !forward) {
            return Err(Status::InitiatorError);
        }
        Ok(())
    }

    /// Reads the keys of the leading request and finds the target and its rule for this initiator.
    fn identify(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) -> Result<(), Status> {
        let value = |name| pairs.iter().find(|(key, _)| *key == name).map(|(_, value)| *value);
        let initiator = value("InitiatorName").ok_or(Status::MissingParameter)?;
        let initiator = names::normalize(initiator).map_err(|_why| Status::InitiatorError)?;
        let (auth, purpose, parameters) = match value("SessionType") {
            Some("Discovery") => {
                (self.directory.discovery.clone(), Purpose::Discovery, Parameters::default())
            }
            None | Some("Normal") => {
                let name = value("TargetName").ok_or(Status::MissingParameter)?;
                let name = names::normalize(name).map_err(|_why| Status::NotFound)?;
                let target = self.directory.targets.get(&name).ok_or(Status::NotFound)?;
                let grant = target.access.grant(&initiator).ok_or(Status::AuthorizationFailure)?;
                (grant.auth.clone(), Purpose::Normal(Arc::clone(target)), target.parameters.clone())
            }
            Some(_) => return Err(Status::SessionTypeNotSupported),
        };
        self.security.require(auth);
        self.negotiation = match purpose {
            Purpose::Discovery => Negotiation::discovery(parameters),
            Purpose::Normal(_) => Negotiation::new(parameters),
        };
        if let Purpose::Normal(target) = &purpose {
            text::push(reply, "TargetPortalGroupTag", target.group);
        }
        self.identity = Some(Identity { initiator, purpose });
        match self.redirect() {
            Some(redirect) if redirect.permanent => return Err(Status::TargetMovedPermanently),
            Some(_) => return Err(Status::TargetMovedTemporarily),
            None => {}
        }
        // RFC 7143 section 6.3: the security stage may be left out only if nothing is to be proved.
        if self.stage != SECURITY && !self.security.passed() {
            return Err(Status::AuthenticationFailure);
        }
        Ok(())
    }

    fn negotiate(&mut self, pairs: &[(&str, &str)], reply: &mut Vec<u8>) -> Result<(), Status> {
        for (name, value) in pairs {
            if is_security_key(name) {
                // Section 6.3: the security stage is over or was left out.
                text::push(reply, name, "Reject");
                continue;
            }
            if is_login_key(name) {
                continue;
            }
            self.negotiation.answer(name, value, reply).map_err(|error| match error {
                KeyError::Twice | KeyError::DigestRequired => Status::InitiatorError,
            })?;
        }
        self.negotiation.declare(reply);
        Ok(())
    }

    fn admit(&mut self, request: &LoginRequest) -> Result<Admitted, Status> {
        let negotiated = self.negotiation.finish().map_err(|_required| Status::InitiatorError)?;
        // `identify` has run: no stage is left without it.
        let identity = self.identity.as_ref().ok_or(Status::InitiatorError)?;
        Ok(Admitted {
            initiator: identity.initiator.clone(),
            isid: request.isid,
            tsih: request.tsih,
            cid: request.cid,
            purpose: identity.purpose.clone(),
            auth: self.security.required().clone(),
            negotiated,
            exp_cmd_sn: request.cmd_sn,
            stat_sn: self.stat_sn,
        })
    }
}
