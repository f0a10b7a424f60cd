//! A small iSCSI initiator over blocking TCP that does exactly what a test tells it, right or wrong.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use rbdgate::portal::pdu::*;

/// Generous: a loaded machine must not fail a test.
const PATIENCE: Duration = Duration::from_secs(20);

/// The initiator's name when a test does not care.
pub(crate) const NAME: &str = "iqn.2026-01.example:initiator";

/// One PDU as received.
#[derive(Clone, Debug)]
pub(crate) struct Pdu {
    pub(crate) header: Header,
    pub(crate) data: Vec<u8>,
}

/// How a command ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u8,
    pub(crate) data: Vec<u8>,
    pub(crate) sense: Vec<u8>,
    pub(crate) overflow: Option<u32>,
    pub(crate) underflow: Option<u32>,
}

impl Answer {
    /// Key, code and qualifier.
    pub(crate) fn sense(&self) -> Option<(u8, u8, u8)> {
        (self.sense.len() >= 14).then(|| (self.sense[2] & 15, self.sense[12], self.sense[13]))
    }
}

/// One connection, logged in or not.
pub(crate) struct Initiator {
    pub(crate) stream: TcpStream,
    pub(crate) cmd_sn: u32,
    pub(crate) exp_stat_sn: u32,
    pub(crate) next_tag: u32,
    pub(crate) max_cmd_sn: u32,
    pub(crate) isid: [u8; 6],
    pub(crate) tsih: u16,
    pub(crate) cid: u16,
    pub(crate) name: String,
    pub(crate) header_digest: bool,
    pub(crate) data_digest: bool,
    /// What was agreed, by key.
    pub(crate) agreed: BTreeMap<String, String>,
}

impl Initiator {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self {
            stream,
            cmd_sn: 1,
            exp_stat_sn: 0,
            next_tag: 1,
            max_cmd_sn: 0,
            isid: [0x40, 0, 0, 1, 0, 0],
            tsih: 0,
            cid: 0,
            name: NAME.into(),
            header_digest: false,
            data_digest: false,
            agreed: BTreeMap::new(),
        }
    }

    /// A session with a target and default keys.
    pub(crate) fn session(address: SocketAddr, target: &str) -> Self {
        Self::session_with(address, target, &[])
    }

    /// A session with a target and these operational keys.
    pub(crate) fn session_with(address: SocketAddr, target: &str, keys: &[(&str, &str)]) -> Self {
        let mut initiator = Self::connect(address);
        initiator.log_in(target, keys);
        initiator
    }

    /// Logs in without authentication; panics when refused.
    pub(crate) fn log_in(&mut self, target: &str, keys: &[(&str, &str)]) {
        let status = self.try_log_in(target, keys);
        assert_eq!(status, 0, "login refused with {status:04x}");
    }

    /// Logs in to a target (or to discovery, when the name is empty); returns status class and detail.
    pub(crate) fn try_log_in(&mut self, target: &str, keys: &[(&str, &str)]) -> u16 {
        let mut text = vec![("InitiatorName".to_owned(), self.name.clone())];
        match target {
            "" => text.push(("SessionType".to_owned(), "Discovery".to_owned())),
            target => text.push(("TargetName".to_owned(), target.to_owned())),
        }
        text.push(("AuthMethod".to_owned(), "None".to_owned()));
        let first: Vec<_> = text.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let reply = self.login_request(0, Some(1), &first);
        if reply.0 != 0 {
            return reply.0;
        }
        self.operational(keys)
    }

    /// The operational stage.
    pub(crate) fn operational(&mut self, keys: &[(&str, &str)]) -> u16 {
        let (status, pairs) = self.login_request(1, Some(3), keys);
        let offered = |key: &str| pairs.iter().any(|(name, value)| name == key && value == "CRC32C");
        self.header_digest = offered("HeaderDigest");
        self.data_digest = offered("DataDigest");
        self.agreed = pairs.into_iter().collect();
        status
    }

    /// One login exchange.
    pub(crate) fn login_request(
        &mut self,
        stage: u8,
        next: Option<u8>,
        keys: &[(&str, &str)],
    ) -> (u16, Vec<(String, String)>) {
        let request = LoginRequest {
            transit: next.is_some(),
            stage,
            next_stage: next.unwrap_or(0),
            isid: self.isid,
            tsih: self.tsih,
            cid: self.cid,
            task_tag: 0xabcd,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ..LoginRequest::default()
        };
        let text: String = keys.iter().map(|(key, value)| format!("{key}={value}\0")).collect();
        self.send(request.encode(), &[], text.as_bytes());
        let pdu = self.receive();
        assert_eq!(pdu.header.opcode(), LoginResponse::OPCODE);
        let response = LoginResponse::decode(&pdu.header);
        self.tsih = response.tsih;
        (u16::from_be_bytes([response.status_class, response.status_detail]), pairs(&pdu.data))
    }

    /// Sends a PDU; lengths, padding and digests are seen to.
    pub(crate) fn send(&mut self, header: Header, ahs: &[u8], data: &[u8]) {
        let bytes = self.frame(header, ahs, data);
        self.stream.write_all(&bytes).unwrap();
    }

    /// A PDU as bytes.
    pub(crate) fn frame(&self, mut header: Header, ahs: &[u8], data: &[u8]) -> Vec<u8> {
        header.set_data_len(data.len());
        header.set_ahs_len(ahs.len());
        let mut bytes = header.0.to_vec();
        bytes.extend_from_slice(ahs);
        if self.header_digest {
            bytes.extend_from_slice(&crc32c::crc32c(&bytes).to_le_bytes());
        }
        if !data.is_empty() {
            let start = bytes.len();
            bytes.extend_from_slice(data);
            bytes.resize(bytes.len() + padding(data.len()), 0);
            if self.data_digest {
                let crc = crc32c::crc32c(&bytes[start..]);
                bytes.extend_from_slice(&crc.to_le_bytes());
            }
        }
        bytes
    }

    /// The next PDU; digests are checked.
    pub(crate) fn receive(&mut self) -> Pdu {
        self.try_receive().expect("the connection was closed")
    }

    /// The next PDU, or `None` at the end of the stream.
    pub(crate) fn try_receive(&mut self) -> Option<Pdu> {
        let mut header = Header::new(0);
        match self.stream.read_exact(&mut header.0) {
            Ok(()) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("nothing came"),
            Err(_) => return None,
        }
        if self.header_digest {
            let mut digest = [0; 4];
            self.stream.read_exact(&mut digest).unwrap();
            assert_eq!(digest, crc32c::crc32c(&header.0).to_le_bytes(), "header digest");
        }
        let len = header.data_len();
        let mut data = vec![0; len + padding(len)];
        self.stream.read_exact(&mut data).unwrap();
        if self.data_digest && len > 0 {
            let mut digest = [0; 4];
            self.stream.read_exact(&mut digest).unwrap();
            assert_eq!(digest, crc32c::crc32c(&data).to_le_bytes(), "data digest");
        }
        data.truncate(len);
        self.exp_stat_sn = header.word(STAT_SN).wrapping_add(1);
        self.max_cmd_sn = header.word(STAT_SN + 8);
        Some(Pdu { header, data })
    }

    /// Whether the peer has closed the connection, whatever it still sends before.
    pub(crate) fn closed(&mut self) -> bool {
        while self.try_receive().is_some() {}
        true
    }

    /// A SCSI command PDU with the next tag and number.
    pub(crate) fn command(&mut self, cdb: &[u8], read: bool, write: bool, expected: usize) -> ScsiCommand {
        let mut short = [0; 16];
        short[..cdb.len().min(16)].copy_from_slice(&cdb[..cdb.len().min(16)]);
        let command = ScsiCommand {
            immediate: false,
            last: true,
            read,
            write,
            attribute: 1,
            lun: 0,
            task_tag: self.tag(),
            expected_len: expected as u32,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            cdb: short,
        };
        self.cmd_sn = self.cmd_sn.wrapping_add(1);
        command
    }

    pub(crate) fn tag(&mut self) -> u32 {
        self.next_tag += 1;
        self.next_tag
    }

    /// A command without data-out.
    pub(crate) fn read(&mut self, cdb: &[u8], expected: usize) -> Answer {
        let command = self.command(cdb, expected > 0, false, expected);
        self.send(command.encode(), &[], &[]);
        self.finish(command.task_tag, &[])
    }

    /// A command with data-out: `immediate` bytes with it, the rest as the target asks for it.
    pub(crate) fn write(&mut self, cdb: &[u8], data: &[u8], immediate: usize) -> Answer {
        let command = self.command(cdb, false, true, data.len());
        self.send(command.encode(), &[], &data[..immediate]);
        self.finish(command.task_tag, data)
    }

    /// Follows a command to its end, answering R2Ts from `data`.
    pub(crate) fn finish(&mut self, task_tag: u32, data: &[u8]) -> Answer {
        let mut answer = Answer::default();
        let mut data_sn = 0;
        loop {
            let pdu = self.receive();
            if pdu.header.opcode() == NopIn::OPCODE {
                continue;
            }
            assert_eq!(pdu.header.task_tag(), task_tag, "not for this command: {pdu:?}");
            match pdu.header.opcode() {
                R2t::OPCODE => self.answer_r2t(&R2t::decode(&pdu.header), data),
                DataIn::OPCODE => {
                    let data_in = DataIn::decode(&pdu.header);
                    assert_eq!((data_in.data_sn, data_in.offset as usize), (data_sn, answer.data.len()));
                    data_sn += 1;
                    answer.data.extend_from_slice(&pdu.data);
                    if data_in.has_status {
                        assert!(data_in.last);
                        answer.status = data_in.status;
                        answer.overflow = data_in.overflow.then_some(data_in.residual);
                        answer.underflow = data_in.underflow.then_some(data_in.residual);
                        return answer;
                    }
                }
                ScsiResponse::OPCODE => {
                    let response = ScsiResponse::decode(&pdu.header);
                    answer.status = response.status;
                    answer.overflow = response.overflow.then_some(response.residual);
                    answer.underflow = response.underflow.then_some(response.residual);
                    if let Some((len, sense)) = pdu.data.split_first_chunk::<2>() {
                        answer.sense = sense[..usize::from(u16::from_be_bytes(*len))].to_vec();
                    }
                    return answer;
                }
                other => panic!("unexpected opcode {other:02x}"),
            }
        }
    }

    /// Sends what an R2T asks for, in PDUs of at most 8192 bytes.
    pub(crate) fn answer_r2t(&mut self, r2t: &R2t, data: &[u8]) {
        let (start, len) = (r2t.offset as usize, r2t.desired_len as usize);
        let mut done = 0;
        let mut data_sn = 0;
        while done < len {
            let part = (len - done).min(8192);
            let pdu = DataOut {
                last: done + part == len,
                lun: r2t.lun,
                task_tag: r2t.task_tag,
                transfer_tag: r2t.transfer_tag,
                exp_stat_sn: self.exp_stat_sn,
                data_sn,
                offset: (start + done) as u32,
            };
            self.send(pdu.encode(), &[], &data[start + done..start + done + part]);
            done += part;
            data_sn += 1;
        }
    }

    /// A task management function; returns its response.
    pub(crate) fn manage(&mut self, function: u8, referenced: &ScsiCommand) -> u8 {
        let task_tag = self.send_management(function, referenced);
        loop {
            let pdu = self.receive();
            if pdu.header.opcode() == TaskManagementResponse::OPCODE {
                assert_eq!(pdu.header.task_tag(), task_tag);
                return TaskManagementResponse::decode(&pdu.header).response;
            }
            assert_ne!(pdu.header.task_tag(), referenced.task_tag, "an aborted command was answered");
        }
    }

    pub(crate) fn send_management(&mut self, function: u8, referenced: &ScsiCommand) -> u32 {
        let request = TaskManagementRequest {
            immediate: true,
            function,
            lun: referenced.lun,
            task_tag: self.tag(),
            referenced_tag: referenced.task_tag,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
            ref_cmd_sn: referenced.cmd_sn,
            exp_data_sn: 0,
        };
        self.send(request.encode(), &[], &[]);
        request.task_tag
    }

    /// A ping and its echo.
    pub(crate) fn ping(&mut self, data: &[u8]) -> Vec<u8> {
        let request = NopOut {
            immediate: true,
            lun: 0,
            task_tag: self.tag(),
            transfer_tag: NO_TAG,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send(request.encode(), &[], data);
        let pdu = self.receive();
        assert_eq!((pdu.header.opcode(), pdu.header.task_tag()), (NopIn::OPCODE, request.task_tag));
        pdu.data
    }

    /// Text of one exchange, followed to its end.
    pub(crate) fn text(&mut self, text: &str) -> Vec<(String, String)> {
        let mut all = Vec::new();
        let mut transfer_tag = NO_TAG;
        let mut segment = text.as_bytes().to_vec();
        loop {
            let request = TextRequest {
                last: true,
                task_tag: self.tag(),
                transfer_tag,
                cmd_sn: self.cmd_sn,
                exp_stat_sn: self.exp_stat_sn,
                ..TextRequest::default()
            };
            self.cmd_sn += 1;
            self.send(request.encode(), &[], &segment);
            let pdu = self.receive();
            assert_eq!(pdu.header.opcode(), TextResponse::OPCODE, "{pdu:?}");
            let response = TextResponse::decode(&pdu.header);
            all.extend_from_slice(&pdu.data);
            if response.last {
                return pairs(&all);
            }
            transfer_tag = response.transfer_tag;
            segment.clear();
        }
    }

    /// A logout; returns its response.
    pub(crate) fn log_out(&mut self, reason: u8) -> u8 {
        let request = LogoutRequest {
            immediate: true,
            reason,
            task_tag: self.tag(),
            cid: self.cid,
            cmd_sn: self.cmd_sn,
            exp_stat_sn: self.exp_stat_sn,
        };
        self.send(request.encode(), &[], &[]);
        loop {
            let pdu = self.receive();
            if pdu.header.opcode() == LogoutResponse::OPCODE {
                return LogoutResponse::decode(&pdu.header).response;
            }
        }
    }
}

/// `key=value` pairs of a text.
pub(crate) fn pairs(text: &[u8]) -> Vec<(String, String)> {
    String::from_utf8(text.to_vec())
        .unwrap()
        .split('\0')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}
