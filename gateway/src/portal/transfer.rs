//! Data-out of commands (RFC 7143 sections 11.7 and 11.8): unsolicited Data-Out, R2Ts, and the checks of both.
//!
//! `DataPDUInOrder` and `DataSequenceInOrder` are always `Yes`: within a sequence every PDU continues the one before.
//! Anything else is a sequence error, which is treated as lost data (sections 7.8 and 7.9): when all that was asked for has come the command is answered CHECK CONDITION; nothing of it reaches the medium. Data for
//! a command that is no longer there is thrown away.

use super::conn::{Connection, Incoming};
use super::pdu::{DataOut, Header, NO_TAG, R2t, Reject};
use super::receive::Place;
use super::sense::Sense;
use super::task::{Failure, Key, Request, State};

impl Connection {
    /// Checks a Data-Out against what is expected and finds the place of its data.
    pub(super) fn place_data(&mut self, header: &Header) -> Place {
        let data = DataOut::decode(header);
        self.incoming = Incoming::Ignore;
        let Some(key) = self.tasks.by_tag(data.task_tag) else { return Place::Discard };
        if data.transfer_tag == NO_TAG {
            return self.place_unsolicited(key, &data, header);
        }
        let Some(task) = self.tasks.get_mut(key) else { return Place::Discard };
        let mut requests = task.transfer.requests.iter().enumerate();
        let Some((place, request)) = requests.find(|(_, request)| request.tag == data.transfer_tag) else {
            // No R2T of the command has this tag, or its sequence is complete (section 11.7.2).
            self.incoming = Incoming::Refuse(Reject::PROTOCOL);
            return Place::Discard;
        };
        let (len, offset) = (header.data_len(), data.offset as usize);
        let end = request.done + len;
        let in_order = data.data_sn == request.data_sn && offset == request.offset + request.done;
        // Section 11.7: beside a target transfer tag stands the LUN of the command. Beside none it is reserved.
        let in_order = in_order && data.lun == task.lun;
        // DataSequenceInOrder=Yes (section 13.19): R2Ts are answered in the order they were sent.
        let in_order = in_order && place == 0;
        // The F bit is on the PDU that completes the sequence and on no other.
        let right_amount = end <= request.len && (end == request.len) == data.last;
        self.incoming = Incoming::Data(key, Some(data.transfer_tag));
        self.place_checked(key, offset, in_order, right_amount)
    }

    fn place_unsolicited(&mut self, key: Key, data: &DataOut, header: &Header) -> Place {
        let Some(task) = self.tasks.get_mut(key) else { return Place::Discard };
        let transfer = &task.transfer;
        if transfer.unsolicited_done {
            self.incoming = Incoming::Refuse(Reject::PROTOCOL);
            return Place::Discard;
        }
        let offset = data.offset as usize;
        let in_order = data.data_sn == transfer.unsolicited_sn && offset == transfer.arrived;
        let right_amount = transfer.arrived + header.data_len() <= transfer.unsolicited;
        self.incoming = Incoming::Data(key, None);
        self.place_checked(key, offset, in_order, right_amount)
    }

    fn place_checked(&mut self, key: Key, offset: usize, in_order: bool, right_amount: bool) -> Place {
        let Some(task) = self.tasks.get_mut(key) else { return Place::Discard };
        if !in_order {
            task.failure.get_or_insert(Failure::Sense(Sense::DATA_DIGEST));
        } else if !right_amount {
            task.failure.get_or_insert(Failure::Sense(Sense::WRONG_AMOUNT));
        }
        if task.failure.is_none() { Place::Task(key.slot, offset) } else { Place::Discard }
    }

    /// A Data-Out is here whole.
    pub(super) fn whole_data(&mut self, key: Key, request: Option<u32>, header: &Header, intact: bool) {
        let deadline = self.now + self.parameters.data_out_timeout;
        let first_burst = self.agreed.first_burst as usize;
        let data = DataOut::decode(header);
        let Some(task) = self.tasks.get_mut(key) else { return };
        if !intact {
            task.failure.get_or_insert(Failure::Sense(Sense::DATA_DIGEST));
        }
        let transfer = &mut task.transfer;
        transfer.arrived += header.data_len();
        task.deadline = task.deadline.map(|_| deadline);
        match request {
            None => {
                transfer.unsolicited_sn = transfer.unsolicited_sn.wrapping_add(1);
                transfer.unsolicited_done = data.last;
                // Section 11.4.7.2: of a longer command, unsolicited data is FirstBurstLength, no more and no less.
                if data.last && task.expected > first_burst && transfer.arrived != first_burst {
                    task.failure.get_or_insert(Failure::Sense(Sense::WRONG_AMOUNT));
                }
                if data.last && matches!(task.state, State::Collecting) {
                    task.deadline = None;
                    self.advance(key);
                }
            }
            Some(tag) => {
                if let Some(request) = transfer.requests.iter_mut().find(|request| request.tag == tag) {
                    // Of a sequence that went wrong, the end is what counts.
                    request.done = if data.last { request.len } else { request.done + header.data_len() };
                    request.data_sn = request.data_sn.wrapping_add(1);
                }
                transfer.requests.retain(|request| request.tag != tag || !data.last);
                match task.failure {
                    // All data that was asked for has come (RFC 7143 section 7.8).
                    Some(failure) if transfer.requests.is_empty() => self.fail(key, failure),
                    Some(_) => {}
                    None if transfer.arrived >= task.expected => self.advance(key),
                    None => self.send_requests(key),
                }
            }
        }
    }

    /// Asks for as much data as may be out at a time.
    pub(super) fn send_requests(&mut self, key: Key) {
        let most = usize::from(self.agreed.max_outstanding_r2t);
        let burst = self.agreed.max_burst as usize;
        loop {
            let tag = self.transfer_tag(key.slot);
            let Some(task) = self.tasks.get_mut(key) else { return };
            let transfer = &mut task.transfer;
            if transfer.requests.len() >= most || transfer.requested >= task.expected {
                return;
            }
            let (offset, len) = (transfer.requested, burst.min(task.expected - transfer.requested));
            let r2t = R2t {
                lun: task.lun,
                task_tag: task.tag,
                transfer_tag: tag,
                r2t_sn: transfer.r2t_sn,
                offset: offset as u32,
                desired_len: len as u32,
                ..R2t::default()
            };
            transfer.requests.push(Request { tag, offset, len, done: 0, data_sn: 0 });
            transfer.requested += len;
            transfer.r2t_sn += 1;
            self.transmit.plain(r2t.encode());
        }
    }
}
