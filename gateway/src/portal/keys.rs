//! Operational text keys (RFC 7143 section 13): one table that says how each is negotiated.
//!
//! The initiator offers, the target answers from [`Parameters`] by the key's rule; a value out of range is answered
//! `Reject` and leaves the default in force. The target offers nothing of its own but declares what it must.

use super::target::{DigestPolicy, Parameters};
use super::text;

/// What both ends agreed on. Lengths in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Negotiated {
    /// CRC32C after every header.
    pub header_digest: bool,
    /// CRC32C after every data segment.
    pub data_digest: bool,
    /// Longest data segment the initiator takes.
    pub max_send_segment: u32,
    /// Longest data segment taken here, as declared.
    pub max_recv_segment: u32,
    /// Longest sequence of Data-In or solicited Data-Out.
    pub max_burst: u32,
    /// Most unsolicited data of a command, immediate data included.
    pub first_burst: u32,
    /// No unsolicited Data-Out.
    pub initial_r2t: bool,
    /// Data may come with the command.
    pub immediate_data: bool,
    /// R2Ts of one command at a time.
    pub max_outstanding_r2t: u16,
    /// Seconds, told at logout.
    pub time_to_wait: u16,
    /// Seconds, told at logout; tasks are not kept at error recovery level 0.
    pub time_to_retain: u16,
}

impl Default for Negotiated {
    /// The standard's defaults, in force for keys that nobody mentions.
    fn default() -> Self {
        Self {
            header_digest: false,
            data_digest: false,
            max_send_segment: 8192,
            max_recv_segment: 8192,
            max_burst: 262_144,
            first_burst: 65_536,
            initial_r2t: true,
            immediate_data: true,
            max_outstanding_r2t: 1,
            time_to_wait: 2,
            time_to_retain: 20,
        }
    }
}

impl Negotiated {
    /// Most bytes that may come unasked for one command of `expected` bytes.
    pub fn unsolicited(&self, expected: usize) -> usize {
        match (self.immediate_data, self.initial_r2t) {
            (false, true) => 0,
            (true, true) => expected.min(self.first_burst.min(self.max_recv_segment) as usize),
            (_, false) => expected.min(self.first_burst as usize),
        }
    }
}

/// Why a login cannot go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// A key came twice.
    #[error("a key was given twice")]
    Twice,
    /// A digest is required here that the initiator does not offer.
    #[error("a required digest was not offered")]
    DigestRequired,
}

/// How a key is answered.
enum Rule {
    /// `Yes` when both say so.
    And,
    /// `Yes` when either says so.
    Or,
    /// The smaller number; (lowest, highest) allowed.
    Min(u32, u32),
    /// The larger number.
    Max(u32, u32),
    /// Each side says its own.
    Declare(u32, u32),
    /// A list of digests.
    Digest(fn(&Parameters) -> DigestPolicy),
    /// `TaskReporting`'s list.
    Reporting,
    /// Obsolete, answered `No` (RFC 7143 section 13.25 forbids `NotUnderstood`).
    No,
    /// Obsolete or out of place, answered `Reject`.
    Reject,
}

struct Key {
    name: &'static str,
    rule: Rule,
    /// What this end wants.
    ours: fn(&Parameters) -> u32,
    /// Where the result goes.
    store: fn(&mut Negotiated, u32),
}

const fn key(
    name: &'static str,
    rule: Rule,
    ours: fn(&Parameters) -> u32,
    store: fn(&mut Negotiated, u32),
) -> Key {
    Key { name, rule, ours, store }
}

/// Lengths are 512 to 2^24 - 1.
const LEN: (u32, u32) = (512, 0x00ff_ffff);

const TABLE: &[Key] = &[
    key(
        "HeaderDigest",
        Rule::Digest(|ours| ours.header_digest),
        |_| 0,
        |to, value| to.header_digest = value != 0,
    ),
    key("DataDigest", Rule::Digest(|ours| ours.data_digest), |_| 0, |to, value| to.data_digest = value != 0),
    key("MaxConnections", Rule::Min(1, 65_535), |_| 1, |_, _| ()),
    key("InitialR2T", Rule::Or, |ours| ours.initial_r2t.into(), |to, value| to.initial_r2t = value != 0),
    key(
        "ImmediateData",
        Rule::And,
        |ours| ours.immediate_data.into(),
        |to, value| to.immediate_data = value != 0,
    ),
    key(
        "MaxRecvDataSegmentLength",
        Rule::Declare(LEN.0, LEN.1),
        |ours| ours.max_recv_data_segment_length,
        |to, value| to.max_send_segment = value,
    ),
    key(
        "MaxBurstLength",
        Rule::Min(LEN.0, LEN.1),
        |ours| ours.max_burst_length,
        |to, value| to.max_burst = value,
    ),
    key(
        "FirstBurstLength",
        Rule::Min(LEN.0, LEN.1),
        |ours| ours.first_burst_length,
        |to, value| {
            to.first_burst = value;
        },
    ),
    key("DefaultTime2Wait", Rule::Max(0, 3600), |_| 2, |to, value| to.time_to_wait = value as u16),
    key("DefaultTime2Retain", Rule::Min(0, 3600), |_| 0, |to, value| to.time_to_retain = value as u16),
    key(
        "MaxOutstandingR2T",
        Rule::Min(1, 65_535),
        |ours| ours.max_outstanding_r2t.into(),
        |to, value| {
            to.max_outstanding_r2t = value as u16;
        },
    ),
    key("DataPDUInOrder", Rule::Or, |_| 1, |_, _| ()),
    key("DataSequenceInOrder", Rule::Or, |_| 1, |_, _| ()),
    key("ErrorRecoveryLevel", Rule::Min(0, 2), |_| 0, |_, _| ()),
    key("TaskReporting", Rule::Reporting, |_| 0, |_, _| ()),
    key("iSCSIProtocolLevel", Rule::Min(0, 31), |_| 1, |_, _| ()),
    key("IFMarker", Rule::No, |_| 0, |_, _| ()),
    key("OFMarker", Rule::No, |_| 0, |_, _| ()),
    key("RDMAExtensions", Rule::No, |_| 0, |_, _| ()),
    key("IFMarkInt", Rule::Reject, |_| 0, |_, _| ()),
    key("OFMarkInt", Rule::Reject, |_| 0, |_, _| ()),
    // Theirs to declare in the security stage, ours to declare, or for another phase.
    key("SendTargets", Rule::Reject, |_| 0, |_, _| ()),
    key("TargetAddress", Rule::Reject, |_| 0, |_, _| ()),
    key("TargetPortalGroupTag", Rule::Reject, |_| 0, |_, _| ()),
    key("TargetAlias", Rule::Reject, |_| 0, |_, _| ()),
];

/// Keys that only the security stage has.
pub fn is_security_key(name: &str) -> bool {
    name == "AuthMethod" || name.starts_with("CHAP_")
}

/// Whether a key means nothing to a discovery session ("Irrelevant when: SessionType=Discovery", RFC 7143 section 13).
fn for_normal_sessions(name: &str) -> bool {
    matches!(
        name,
        "MaxConnections"
            | "InitialR2T"
            | "ImmediateData"
            | "MaxBurstLength"
            | "FirstBurstLength"
            | "MaxOutstandingR2T"
            | "DataPDUInOrder"
            | "DataSequenceInOrder"
            | "TaskReporting"
    )
}

/// Keys of the security stage and of the leading request, which [`super::login`] handles itself.
pub fn is_login_key(name: &str) -> bool {
    matches!(name, "InitiatorName" | "InitiatorAlias" | "TargetName" | "SessionType" | "AuthMethod")
        || name.starts_with("CHAP_")
}

/// The operational negotiation of one login.
#[derive(Debug)]
pub struct Negotiation {
    ours: Parameters,
    result: Negotiated,
    /// Bit per row of the table: offered by the initiator.
    seen: u64,
    declared: bool,
    discovery: bool,
}

impl Negotiation {
    /// Starts with the standard's defaults.
    pub fn new(ours: Parameters) -> Self {
        Self { ours, result: Negotiated::default(), seen: 0, declared: false, discovery: false }
    }

    /// The negotiation of a discovery session.
    pub fn discovery(ours: Parameters) -> Self {
        Self { discovery: true, ..Self::new(ours) }
    }

    /// Answers one offer into `reply`.
    pub fn answer(&mut self, name: &str, value: &str, reply: &mut Vec<u8>) -> Result<(), KeyError> {
        let Some((row, key)) = TABLE.iter().enumerate().find(|(_, key)| key.name == name) else {
            text::push(reply, name, "NotUnderstood");
            return Ok(());
        };
        if self.seen & 1 << row != 0 {
            return Err(KeyError::Twice);
        }
        self.seen |= 1 << row;
        if self.discovery && for_normal_sessions(name) {
            text::push(reply, name, "Irrelevant");
            return Ok(());
        }
        let ours = (key.ours)(&self.ours);
        let agreed = match key.rule {
            Rule::And | Rule::Or => boolean(value).map(|theirs| {
                let yes =
                    if matches!(key.rule, Rule::And) { theirs && ours != 0 } else { theirs || ours != 0 };
                (u32::from(yes), if yes { "Yes".to_owned() } else { "No".to_owned() })
            }),
            Rule::Min(low, high) => number(value, low, high).map(|theirs| theirs.min(ours)).map(with_text),
            Rule::Max(low, high) => number(value, low, high).map(|theirs| theirs.max(ours)).map(with_text),
            Rule::Declare(low, high) => match number(value, low, high) {
                Some(theirs) => {
                    (key.store)(&mut self.result, theirs);
                    return Ok(());
                }
                None => None,
            },
            Rule::Digest(policy) => digest(value, policy(&self.ours))?,
            Rule::Reporting => {
                value.split(',').find(|item| *item == "RFC3720").map(|item| (0, item.to_owned()))
            }
            Rule::No => Some((0, "No".to_owned())),
            Rule::Reject => None,
        };
        match agreed {
            Some((value, answer)) => {
                (key.store)(&mut self.result, value);
                text::push(reply, name, answer);
            }
            None => text::push(reply, name, "Reject"),
        }
        Ok(())
    }

    /// What the target declares unasked, once, in the operational stage.
    pub fn declare(&mut self, reply: &mut Vec<u8>) {
        if !self.declared {
            self.declared = true;
            self.result.max_recv_segment = self.ours.max_recv_data_segment_length.clamp(LEN.0, LEN.1);
            text::push(reply, "MaxRecvDataSegmentLength", self.result.max_recv_segment);
        }
    }

    /// The end of the negotiation.
    pub fn finish(&self) -> Result<Negotiated, KeyError> {
        let mut result = self.result.clone();
        let missing = |policy, agreed: bool| policy == DigestPolicy::Required && !agreed;
        if missing(self.ours.header_digest, result.header_digest)
            || missing(self.ours.data_digest, result.data_digest)
        {
            return Err(KeyError::DigestRequired);
        }
        // RFC 7143 section 13.14: FirstBurstLength must not exceed MaxBurstLength.
        result.first_burst = result.first_burst.min(result.max_burst);
        Ok(result)
    }
}

/// Keys that may come in a text request of the full feature phase: the segment length can be declared anew.
pub fn redeclare(result: &mut Negotiated, name: &str, value: &str, reply: &mut Vec<u8>) {
    let known = TABLE.iter().any(|key| key.name == name) || is_login_key(name);
    match number(value, LEN.0, LEN.1) {
        Some(theirs) if name == "MaxRecvDataSegmentLength" => result.max_send_segment = theirs,
        _ => text::push(reply, name, if known { "Reject" } else { "NotUnderstood" }),
    }
}

fn with_text(value: u32) -> (u32, String) {
    (value, value.to_string())
}

fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

fn number(value: &str, low: u32, high: u32) -> Option<u32> {
    let value = u32::try_from(text::decode_number(value)?).ok()?;
    (low..=high).contains(&value).then_some(value)
}

/// The first digest of the initiator's list that this end allows.
fn digest(value: &str, policy: DigestPolicy) -> Result<Option<(u32, String)>, KeyError> {
    let chosen = value.split(',').find(|item| match *item {
        "CRC32C" => policy != DigestPolicy::Never,
        "None" => policy != DigestPolicy::Required,
        _ => false,
    });
    match chosen {
        None if policy == DigestPolicy::Required => Err(KeyError::DigestRequired),
        chosen => Ok(chosen.map(|item| (u32::from(item == "CRC32C"), item.to_owned()))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn negotiate(ours: Parameters, offers: &[(&str, &str)]) -> (Negotiated, String) {
        let mut negotiation = Negotiation::new(ours);
        let mut reply = Vec::new();
        for (name, value) in offers {
            negotiation.answer(name, value, &mut reply).unwrap();
        }
        (negotiation.finish().unwrap(), String::from_utf8(reply).unwrap().replace('\0', " "))
    }

    #[test]
    fn keys_nobody_mentions_have_the_standards_defaults() {
        assert_eq!(negotiate(Parameters::default(), &[]).0, Negotiated::default());
    }

    #[test]
    fn every_rule_gives_the_standards_result() {
        let (result, reply) = negotiate(
            Parameters::default(),
            &[
                ("HeaderDigest", "CRC32C,None"),
                ("DataDigest", "None,CRC32C"),
                ("MaxConnections", "8"),
                ("InitialR2T", "No"),
                ("ImmediateData", "Yes"),
                ("MaxRecvDataSegmentLength", "65536"),
                ("MaxBurstLength", "16776192"),
                ("FirstBurstLength", "4096"),
                ("DefaultTime2Wait", "5"),
                ("DefaultTime2Retain", "20"),
                ("MaxOutstandingR2T", "16"),
                ("DataPDUInOrder", "No"),
                ("DataSequenceInOrder", "Yes"),
                ("ErrorRecoveryLevel", "2"),
                ("TaskReporting", "FastAbort,RFC3720"),
                ("iSCSIProtocolLevel", "2"),
            ],
        );
        let expected = "HeaderDigest=CRC32C DataDigest=None MaxConnections=1 InitialR2T=No ImmediateData=Yes \
                        MaxBurstLength=1048576 FirstBurstLength=4096 DefaultTime2Wait=5 DefaultTime2Retain=0 \
                        MaxOutstandingR2T=8 DataPDUInOrder=Yes DataSequenceInOrder=Yes ErrorRecoveryLevel=0 \
                        TaskReporting=RFC3720 iSCSIProtocolLevel=1 ";
        assert_eq!(reply, expected);
        assert!(result.header_digest && !result.data_digest && !result.initial_r2t && result.immediate_data);
        assert_eq!((result.max_send_segment, result.max_burst, result.first_burst), (65_536, 1 << 20, 4096));
        assert_eq!((result.time_to_wait, result.time_to_retain, result.max_outstanding_r2t), (5, 0, 8));
    }

    #[test]
    fn markers_are_answered_no_or_reject_and_never_not_understood() {
        let offers =
            [("IFMarker", "Yes"), ("OFMarker", "No"), ("IFMarkInt", "2048~8192"), ("OFMarkInt", "1")];
        let reply = negotiate(Parameters::default(), &offers).1;
        assert_eq!(reply, "IFMarker=No OFMarker=No IFMarkInt=Reject OFMarkInt=Reject ");
    }

    #[test]
    fn keys_of_normal_sessions_are_irrelevant_to_discovery() {
        let mut negotiation = Negotiation::discovery(Parameters::default());
        let mut reply = Vec::new();
        for (name, value) in [("InitialR2T", "No"), ("MaxBurstLength", "512"), ("HeaderDigest", "CRC32C")] {
            negotiation.answer(name, value, &mut reply).unwrap();
        }
        // RFC 7143 sections 13.10 and 13.13: Irrelevant when SessionType=Discovery.
        assert_eq!(reply, b"InitialR2T=Irrelevant\0MaxBurstLength=Irrelevant\0HeaderDigest=CRC32C\0");
        let agreed = negotiation.finish().unwrap();
        assert_eq!(agreed, Negotiated { header_digest: true, ..Negotiated::default() });
    }

    #[test]
    fn extension_keys_are_not_understood() {
        let reply = negotiate(Parameters::default(), &[("X-com.example.foo", "1"), ("Y#digest", "2")]).1;
        assert_eq!(reply, "X-com.example.foo=NotUnderstood Y#digest=NotUnderstood ");
    }

    #[test]
    fn values_out_of_range_are_rejected_and_change_nothing() {
        let offers = [
            ("MaxBurstLength", "511"),
            ("FirstBurstLength", "16777216"),
            ("InitialR2T", "yes"),
            ("MaxConnections", "0"),
            ("MaxRecvDataSegmentLength", "1"),
            ("HeaderDigest", "MD5"),
        ];
        let (result, reply) = negotiate(Parameters::default(), &offers);
        assert_eq!(result, Negotiated::default());
        assert_eq!(reply.matches("=Reject").count(), offers.len());
    }

    #[test]
    fn a_required_digest_that_is_not_offered_ends_the_login() {
        let ours = Parameters { data_digest: DigestPolicy::Required, ..Parameters::default() };
        let mut negotiation = Negotiation::new(ours.clone());
        let refused = negotiation.answer("DataDigest", "None", &mut Vec::new());
        assert_eq!(refused, Err(KeyError::DigestRequired));
        assert_eq!(Negotiation::new(ours).finish(), Err(KeyError::DigestRequired));
    }

    #[test]
    fn a_key_given_twice_ends_the_login() {
        let mut negotiation = Negotiation::new(Parameters::default());
        negotiation.answer("MaxConnections", "1", &mut Vec::new()).unwrap();
        assert_eq!(negotiation.answer("MaxConnections", "1", &mut Vec::new()), Err(KeyError::Twice));
    }

    #[test]
    fn the_first_burst_never_exceeds_the_burst() {
        let offers = [("MaxBurstLength", "8192"), ("FirstBurstLength", "65536")];
        assert_eq!(negotiate(Parameters::default(), &offers).0.first_burst, 8192);
    }

    #[test]
    fn unsolicited_data_is_bounded_by_what_was_agreed() {
        let mut agreed = Negotiated { max_recv_segment: 8192, first_burst: 65_536, ..Negotiated::default() };
        assert_eq!(agreed.unsolicited(1 << 20), 8192);
        agreed.initial_r2t = false;
        assert_eq!((agreed.unsolicited(1 << 20), agreed.unsolicited(512)), (65_536, 512));
        (agreed.immediate_data, agreed.initial_r2t) = (false, true);
        assert_eq!(agreed.unsolicited(1 << 20), 0);
    }

    proptest! {
        #[test]
        fn any_offer_is_answered_within_the_standards_ranges(
            offers in proptest::collection::vec((0..TABLE.len(), "[0-9A-Za-z,x~]{0,12}"), 0..20)
        ) {
            let mut negotiation = Negotiation::new(Parameters::default());
            for (row, value) in offers {
                let _ = negotiation.answer(TABLE[row].name, &value, &mut Vec::new());
            }
            let result = negotiation.finish().unwrap();
            prop_assert!((512..=0x00ff_ffff).contains(&result.max_send_segment));
            prop_assert!((512..=1 << 20).contains(&result.max_burst) && result.first_burst <= result.max_burst);
            prop_assert!((1..=8).contains(&result.max_outstanding_r2t));
        }
    }
}
