//! The order of requests (RFC 7143 section 4.2.2.1): by CmdSN, at once when immediate, and not at all outside the window.

use std::collections::btree_map::Entry;

use super::conn::{Connection, Delivery};
use super::inbox::End;
use super::pdu::{
    DataOut, Header, LoginRequest, LogoutRequest, NO_TAG, NopOut, Reject, Snack, TaskManagementRequest,
    TextRequest,
};
use super::window::Standing;

/// Bytes of kept segments that wait for their turn in the order of commands.
const HELD: usize = 1 << 20;
/// Task management functions that may wait for the commands they end, each of which remembers them.
const FUNCTIONS: usize = 64;

impl Connection {
    /// A request that is no command is here whole.
    pub(super) fn request(&mut self, header: &Header, kept: Vec<u8>) -> Result<(), End> {
        let untagged = header.task_tag() == NO_TAG;
        match header.opcode() {
            // Section 11.18.1: without a tag it is immediate, and has used no number.
            NopOut::OPCODE if untagged && !header.immediate() => {
                self.reject(header, Reject::PROTOCOL);
                Ok(())
            }
            TaskManagementRequest::OPCODE | TextRequest::OPCODE | LogoutRequest::OPCODE if untagged => {
                self.reject(header, Reject::INVALID_FIELD);
                self.skip_number(header)
            }
            NopOut::OPCODE | TaskManagementRequest::OPCODE | TextRequest::OPCODE | LogoutRequest::OPCODE => {
                self.in_order(header, |kept| Delivery::Request(*header, kept), kept)
            }
            Snack::OPCODE => {
                self.reject(header, Reject::SNACK);
                Ok(())
            }
            opcode => {
                // Section 6.3: the login phase is over.
                let login = opcode == LoginRequest::OPCODE;
                self.reject(header, if login { Reject::PROTOCOL } else { Reject::UNSUPPORTED });
                self.skip_number(header)
            }
        }
    }

    /// A refused request has still used up its number (RFC 7143 section 11.17.1).
    pub(super) fn skip_number(&mut self, header: &Header) -> Result<(), End> {
        if !numbered(header) {
            return Ok(());
        }
        self.in_order(header, |_kept| Delivery::Nothing, Vec::new())
    }

    /// Whether a request bears a number that is not expected (any more), or that has come already.
    pub(super) fn out_of_place(&self, header: &Header) -> bool {
        let number = header.word(24);
        numbered(header)
            && (self.window.standing(number) == Standing::Outside || self.held.contains_key(&number))
    }

    /// Delivers now, later or never, as the command number says.
    pub(super) fn in_order(
        &mut self,
        header: &Header,
        make: impl FnOnce(Vec<u8>) -> Delivery,
        kept: Vec<u8>,
    ) -> Result<(), End> {
        let cmd_sn = header.word(24);
        if header.immediate() {
            self.deliver(make(kept));
            return Ok(());
        }
        match self.window.standing(cmd_sn) {
            Standing::Outside => Ok(()),
            Standing::Early => {
                // The first one counts; a duplicate is ignored silently.
                if let Entry::Vacant(place) = self.held.entry(cmd_sn) {
                    self.held_bytes += kept.len();
                    if self.held_bytes > HELD {
                        return Err(End::Protocol);
                    }
                    place.insert(make(kept));
                }
                Ok(())
            }
            Standing::Next => {
                self.window.advance();
                self.deliver(make(kept));
                self.deliver_held();
                Ok(())
            }
        }
    }

    /// Delivers what waited for the numbers before it.
    pub(super) fn deliver_held(&mut self) {
        while let Some(delivery) = self.held.remove(&self.window.exp_cmd_sn()) {
            self.window.advance();
            if let Delivery::Request(_, kept) = &delivery {
                self.held_bytes -= kept.len();
            }
            self.deliver(delivery);
        }
    }

    fn deliver(&mut self, delivery: Delivery) {
        match delivery {
            Delivery::Nothing => {}
            Delivery::Command(key) => self.start(key),
            // What was asked for after the logout is not done any more.
            Delivery::Request(header, _) if self.logging_out && header.opcode() != NopOut::OPCODE => {
                self.reject(&header, Reject::WAITING_FOR_LOGOUT);
            }
            Delivery::Request(header, kept) => match header.opcode() {
                NopOut::OPCODE => self.ping(&NopOut::decode(&header), kept),
                TaskManagementRequest::OPCODE if self.managing.len() >= FUNCTIONS => {
                    self.reject(&header, Reject::TOO_MANY_IMMEDIATE);
                }
                TaskManagementRequest::OPCODE => self.manage(&TaskManagementRequest::decode(&header)),
                TextRequest::OPCODE => self.text(&header, &kept),
                // Reasons beyond 2 are reserved (section 11.14.1).
                _ if LogoutRequest::decode(&header).reason > 2 => self.reject(&header, Reject::INVALID_FIELD),
                _ => self.logout(&LogoutRequest::decode(&header)),
            },
        }
    }
}

/// Whether a request has a place of its own in the order of commands. Immediate ones have not, Data-Out and SNACK have no
/// number, and what only targets send has none either.
fn numbered(header: &Header) -> bool {
    !header.immediate() && !matches!(header.opcode(), DataOut::OPCODE | Snack::OPCODE | 0x20..)
}
