//! Requests that are not SCSI: NOP, text, logout; and what the target sends of its own accord.

use std::sync::Arc;
use std::time::Duration;

use super::conn::Connection;
use super::inbox::{End, Hold};
use super::keys::redeclare;
use super::management::{Answer, Managing};
use super::pdu::{
    AsyncMessage, Header, LogoutRequest, LogoutResponse, NO_TAG, NopIn, NopOut, Reject, TextRequest,
    TextResponse,
};
use super::stream::Stream;
use super::{discovery, text};

/// Longest text taken over several requests.
const MAX_TEXT: usize = 16 * 1024;
/// Seconds an initiator is given to log out.
const LOGOUT_SECONDS: u16 = 5;

/// A text exchange under way.
#[derive(Debug)]
pub(super) struct TextExchange {
    /// Text of requests with the C bit.
    taken: Vec<u8>,
    /// Answer not yet sent, and the tag under which the rest can be asked for; `NO_TAG`: nothing is under way.
    left: Vec<u8>,
    tag: u32,
}

impl Default for TextExchange {
    fn default() -> Self {
        Self { taken: Vec::new(), left: Vec::new(), tag: NO_TAG }
    }
}

impl Connection {
    /// NOP-Out (RFC 7143 section 11.18): answered if it has a tag, else it was the answer to a ping.
    pub(super) fn ping(&mut self, request: &NopOut, mut data: Vec<u8>) {
        if request.task_tag == NO_TAG {
            return;
        }
        data.truncate(self.agreed.max_send_segment as usize);
        let answer =
            NopIn { task_tag: request.task_tag, transfer_tag: NO_TAG, lun: request.lun, ..NopIn::default() };
        self.transmit.status(answer.encode(), data);
    }

    /// Asks whether the initiator is still there.
    pub(super) fn send_ping(&mut self) {
        let transfer_tag = self.transfer_tag(0);
        let ping = NopIn { task_tag: NO_TAG, transfer_tag, ..NopIn::default() };
        self.transmit.plain(ping.encode());
    }

    /// Tells new numbers to an initiator that believes the window closed.
    pub(super) fn tell_window(&mut self) {
        let news = NopIn { task_tag: NO_TAG, transfer_tag: NO_TAG, ..NopIn::default() };
        self.transmit.plain(news.encode());
    }

    /// Text request (RFC 7143 section 11.10).
    pub(super) fn text(&mut self, header: &Header, segment: &[u8]) {
        let request = TextRequest::decode(header);
        let follows = request.transfer_tag != NO_TAG;
        if follows && request.transfer_tag != self.text.tag {
            return self.reject(header, Reject::PROTOCOL);
        }
        if follows && !self.text.left.is_empty() && !segment.is_empty() {
            // The rest of an answer is asked for with an empty text (section 11.10).
            return self.reject(header, Reject::PROTOCOL);
        }
        if !follows {
            // A new exchange ends the old one.
            self.text = TextExchange::default();
        }
        if self.text.taken.len() + segment.len() > MAX_TEXT || request.more && request.last {
            self.text = TextExchange::default();
            return self.reject(header, Reject::PROTOCOL);
        }
        self.text.taken.extend_from_slice(segment);
        if !request.more {
            let taken = std::mem::take(&mut self.text.taken);
            match text::parse(&taken) {
                Ok(pairs) => {
                    for (name, value) in pairs {
                        self.text_key(name, value);
                    }
                }
                Err(_malformed) => return self.reject(header, Reject::PROTOCOL),
            }
        }
        self.answer_text(&request);
    }

    fn text_key(&mut self, name: &str, value: &str) {
        let mut reply = std::mem::take(&mut self.text.left);
        if name == "SendTargets" {
            let directory = self.shared.directory();
            let session = self.session.target.as_ref().map(|target| target.name.as_str());
            let local = self.session.local;
            match discovery::send_targets(&directory, &self.session.initiator, session, value, local) {
                Some(targets) => reply.extend_from_slice(&targets),
                None => text::push(&mut reply, name, "Reject"),
            }
        } else {
            redeclare(&mut self.agreed, name, value, &mut reply);
            self.transmit.set_max_segment(self.agreed.max_send_segment as usize);
        }
        self.text.left = reply;
    }

    /// Sends as much of the answer as fits one PDU; the initiator asks for the rest with the tag.
    fn answer_text(&mut self, request: &TextRequest) {
        let most = self.agreed.max_send_segment as usize;
        let rest = if self.text.left.len() > most { self.text.left.split_off(most) } else { Vec::new() };
        let part = std::mem::replace(&mut self.text.left, rest);
        let more = !self.text.left.is_empty();
        // Until the initiator says that it is done (F), the exchange stays open.
        let last = request.last && !more;
        self.text.tag = if last { NO_TAG } else { self.transfer_tag(0) };
        let answer = TextResponse {
            last,
            more,
            lun: request.lun,
            task_tag: request.task_tag,
            transfer_tag: self.text.tag,
            ..TextResponse::default()
        };
        self.transmit.status(answer.encode(), part);
    }

    /// Logout request (RFC 7143 section 11.14).
    pub(super) fn logout(&mut self, request: &LogoutRequest) {
        let response = match request.reason {
            0 => 0,
            1 if request.cid == self.session.cid => 0,
            1 => 1,
            _ => 2,
        };
        if response != 0 {
            let answer = LogoutResponse { response, task_tag: request.task_tag, ..self.logout_response() };
            return self.transmit.status(answer.encode(), Vec::new());
        }
        // Ends every command; answered when none of them can change the medium any more.
        self.logging_out = true;
        let (serial, hold) = self.new_hold();
        self.managing.push(Managing { serial, answer: Answer::Logout(request.task_tag) });
        self.abort_own(|_task| true, &hold, None);
    }

    pub(super) fn logged_out(&mut self, task_tag: u32) {
        let answer = LogoutResponse { task_tag, ..self.logout_response() };
        self.transmit.status(answer.encode(), Vec::new());
        self.closing = Some(End::Initiator);
    }

    fn logout_response(&self) -> LogoutResponse {
        LogoutResponse {
            time_to_wait: self.agreed.time_to_wait,
            time_to_retain: self.agreed.time_to_retain,
            ..LogoutResponse::default()
        }
    }

    /// Asks the initiator to log out (RFC 7143 section 11.9, event 1).
    pub(super) fn ask_logout(&mut self, enforce: bool) {
        if enforce {
            self.logout_by = Some(self.now + Duration::from_secs(u64::from(LOGOUT_SECONDS)));
        }
        let message = AsyncMessage {
            task_tag: NO_TAG,
            event: 1,
            parameter3: LOGOUT_SECONDS,
            ..AsyncMessage::default()
        };
        self.transmit.status(message.encode(), Vec::new());
    }

    /// Says that the connection is being dropped by this end (section 11.9, event 3), as far as the socket takes it now.
    pub(super) fn last_words(&mut self, end: End, stream: &mut dyn Stream) {
        if !matches!(end, End::Revoked | End::Shutdown | End::Reset | End::Overdue) {
            return;
        }
        let message = AsyncMessage {
            task_tag: NO_TAG,
            event: 3,
            parameter2: self.agreed.time_to_wait,
            parameter3: self.agreed.time_to_retain,
            ..AsyncMessage::default()
        };
        self.transmit.status(message.encode(), Vec::new());
        // Nobody is left to be told when it does not go out.
        let _ = self.transmit.run(stream, &mut self.window);
    }

    /// A hold that leads to [`Connection::released`] with this number.
    pub(super) fn new_hold(&mut self) -> (u32, Hold) {
        self.serial = self.serial.wrapping_add(1);
        let (serial, inbox) = (self.serial, Arc::clone(&self.inbox));
        (serial, Hold::new(move || inbox.post(super::inbox::Event::Released(serial))))
    }

    /// A target transfer tag that names `slot`, never the reserved one.
    pub(super) fn transfer_tag(&mut self, slot: usize) -> u32 {
        self.next_transfer_tag = self.next_transfer_tag.wrapping_add(1) & 0x003f_ffff;
        (slot as u32 & 0x1ff) << 22 | self.next_transfer_tag
    }
}
