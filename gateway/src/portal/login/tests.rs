//! Logins as scripts: requests in, responses out, each outcome with the clause it follows.

use super::*;
use crate::portal::chap::{Algorithm, Chap, Credential};
use crate::portal::pdu::LoginRequest;
use crate::portal::target::Limits;
use crate::secret::Secret;

const NAME: &str = "InitiatorName=iqn.1993-08.org.debian:01:abc\0";

fn directory(discovery: Auth) -> Arc<Directory> {
    Arc::new(Directory { discovery, ..Directory::default() })
}

fn chap(mutual: bool) -> Auth {
    let credential = |user: &str, secret: &str| Credential { user: user.into(), secret: Secret::new(secret) };
    Auth::Chap(Arc::new(Chap {
        initiator: credential("alice", "initiatorsecret1"),
        target: mutual.then(|| credential("gate", "targetsecret1234")),
        algorithms: Algorithm::ALL.to_vec(),
    }))
}

fn login(discovery: Auth) -> Login {
    Login::new(directory(discovery), || Some([7; 33]))
}

fn request(stage: u8, next: Option<u8>) -> LoginRequest {
    LoginRequest {
        transit: next.is_some(),
        stage,
        next_stage: next.unwrap_or(0),
        isid: [0x40, 0, 1, 2, 3, 4],
        task_tag: 5,
        cmd_sn: 100,
        ..LoginRequest::default()
    }
}

fn text_of(reply: &Reply) -> String {
    String::from_utf8(reply.text.clone()).unwrap().replace('\0', " ")
}

fn continues(progress: Progress) -> Reply {
    match progress {
        Progress::Continue(reply) => reply,
        other => panic!("{other:?}"),
    }
}

fn fails(progress: Progress) -> Status {
    match progress {
        Progress::Failed(reply, status) => {
            assert_eq!(
                u16::from_be_bytes([reply.header.status_class, reply.header.status_detail]),
                status as u16
            );
            status
        }
        other => panic!("{other:?}"),
    }
}

fn discovery(more: &str) -> Vec<u8> {
    format!("{NAME}SessionType=Discovery\0{more}").into_bytes()
}

#[test]
fn a_discovery_login_without_authentication_takes_two_requests() {
    let mut login = login(Auth::None);
    let first = continues(login.request(&request(0, Some(1)), &discovery("AuthMethod=CHAP,None\0")));
    assert_eq!(text_of(&first), "AuthMethod=None ");
    assert!(first.header.transit && first.header.next_stage == 1 && first.header.stage == 0);
    let second = login.request(&request(1, Some(3)), b"MaxRecvDataSegmentLength=65536\0HeaderDigest=None\0");
    let Progress::Admitted(reply, admitted) = second else { panic!("{second:?}") };
    assert_eq!(text_of(&reply), "HeaderDigest=None MaxRecvDataSegmentLength=262144 ");
    assert_eq!((reply.header.stat_sn, admitted.stat_sn, admitted.exp_cmd_sn), (2, 3, 100));
    assert_eq!(admitted.negotiated.max_send_segment, 65_536);
    assert!(matches!(admitted.purpose, Purpose::Discovery));
}

#[test]
fn the_operational_stage_may_come_first_when_nothing_is_to_be_proved() {
    let admitted = login(Auth::None).request(&request(1, Some(3)), &discovery(""));
    assert!(matches!(admitted, Progress::Admitted(..)), "{admitted:?}");
}

#[test]
fn security_may_lead_straight_to_full_feature_with_the_default_parameters() {
    let admitted = login(Auth::None).request(&request(0, Some(3)), &discovery("AuthMethod=None\0"));
    let Progress::Admitted(_, admitted) = admitted else { panic!("{admitted:?}") };
    assert_eq!(admitted.negotiated, Negotiated::default());
}

#[test]
fn the_security_stage_cannot_be_skipped_when_proof_is_required() {
    assert_eq!(
        fails(login(chap(false)).request(&request(1, Some(3)), &discovery(""))),
        Status::AuthenticationFailure
    );
    let mut login = login(chap(false));
    let reply = continues(login.request(&request(0, Some(3)), &discovery("AuthMethod=CHAP\0")));
    assert!(!reply.header.transit);
    assert_eq!(fails(login.request(&request(1, Some(3)), b"")), Status::InvalidDuringLogin);
}

#[test]
fn an_initiator_that_offers_no_usable_method_fails_authentication() {
    let offer = discovery("AuthMethod=None\0");
    assert_eq!(
        fails(login(chap(false)).request(&request(0, Some(1)), &offer)),
        Status::AuthenticationFailure
    );
    let offer = discovery("AuthMethod=CHAP\0");
    assert_eq!(fails(login(Auth::None).request(&request(0, Some(1)), &offer)), Status::AuthenticationFailure);
}

fn challenged(auth: Auth) -> Login {
    let mut login = login(auth);
    let method = continues(login.request(&request(0, None), &discovery("AuthMethod=CHAP\0")));
    assert_eq!(text_of(&method), "AuthMethod=CHAP ");
    let challenge = continues(login.request(&request(0, None), b"CHAP_A=5\0"));
    assert_eq!(text_of(&challenge), format!("CHAP_A=5 CHAP_I=7 CHAP_C=0x{} ", "07".repeat(16)));
    login
}

fn answer(secret: &str) -> String {
    let response = Algorithm::Md5.respond(7, secret.as_bytes(), &[7; 16]);
    format!("CHAP_N=alice\0CHAP_R={}\0", text::encode_hex(&response))
}

#[test]
fn chap_admits_the_right_secret_only() {
    let good = challenged(chap(false)).request(&request(0, Some(1)), answer("initiatorsecret1").as_bytes());
    assert!(continues(good).header.transit);
    let bad = challenged(chap(false)).request(&request(0, Some(1)), answer("guess").as_bytes());
    assert_eq!(fails(bad), Status::AuthenticationFailure);
}

#[test]
fn mutual_chap_answers_with_the_targets_proof() {
    let keys = format!("{}CHAP_I=9\0CHAP_C=0x0102\0", answer("initiatorsecret1"));
    let reply = continues(challenged(chap(true)).request(&request(0, Some(1)), keys.as_bytes()));
    let proof = text::encode_hex(&Algorithm::Md5.respond(9, b"targetsecret1234", &[1, 2]));
    assert_eq!(text_of(&reply), format!("CHAP_N=gate CHAP_R={proof} "));
}

#[test]
fn a_challenge_is_good_for_one_answer_and_keys_out_of_order_fail() {
    let mut early = login(chap(false));
    let first = early.request(&request(0, None), &discovery(&answer("initiatorsecret1")));
    assert_eq!(fails(first), Status::AuthenticationFailure);
    let mut no_method = login(chap(false));
    assert_eq!(
        fails(no_method.request(&request(0, None), &discovery("CHAP_A=5\0"))),
        Status::AuthenticationFailure
    );
}

#[test]
fn names_and_targets_are_looked_at_first() {
    let status = |text: &str| fails(login(Auth::None).request(&request(0, Some(1)), text.as_bytes()));
    assert_eq!(status("SessionType=Discovery\0"), Status::MissingParameter);
    assert_eq!(status("InitiatorName=nonsense\0SessionType=Discovery\0"), Status::InitiatorError);
    assert_eq!(status(NAME), Status::MissingParameter);
    assert_eq!(status(&format!("{NAME}TargetName=iqn.2026-01.example:none\0")), Status::NotFound);
    assert_eq!(status(&format!("{NAME}SessionType=Other\0")), Status::SessionTypeNotSupported);
    assert_eq!(status("no equals sign\0"), Status::InitiatorError);
}

#[test]
fn headers_that_break_the_rules_fail() {
    let status = |request: LoginRequest| fails(login(Auth::None).request(&request, &discovery("")));
    assert_eq!(status(LoginRequest { version_min: 1, ..request(0, Some(1)) }), Status::UnsupportedVersion);
    assert_eq!(status(request(3, Some(3))), Status::InvalidDuringLogin);
    assert_eq!(status(request(1, Some(1))), Status::InitiatorError);
    assert_eq!(status(request(0, Some(2))), Status::InitiatorError);
    assert_eq!(status(LoginRequest { more: true, ..request(0, Some(1)) }), Status::InitiatorError);
    let mut changed = login(Auth::None);
    let _ = continues(changed.request(&request(0, None), &discovery("")));
    let other = LoginRequest { isid: [1; 6], ..request(0, Some(1)) };
    assert_eq!(fails(changed.request(&other, b"")), Status::InvalidDuringLogin);
}

#[test]
fn text_spread_over_requests_with_the_c_bit_is_joined_within_bounds() {
    let mut joined = login(Auth::None);
    let more = LoginRequest { more: true, ..request(0, None) };
    let whole = discovery("AuthMethod=None\0");
    let (one, two) = whole.split_at(20);
    assert!(continues(joined.request(&more, one)).text.is_empty());
    assert!(continues(joined.request(&request(0, Some(1)), two)).header.transit);

    let mut endless = login(Auth::None);
    let block = vec![b'a'; MAX_SEGMENT];
    let _ = continues(endless.request(&more, &block));
    let _ = continues(endless.request(&more, &block));
    assert_eq!(fails(endless.request(&more, &block)), Status::OutOfResources);
    let mut chatty = login(Auth::None);
    let last = (0..=MAX_REQUESTS).map(|_| chatty.request(&more, b"")).last().unwrap();
    assert_eq!(fails(last), Status::InitiatorError);
}

#[test]
fn operational_keys_in_the_security_stage_are_refused_and_keep_their_defaults() {
    let mut login = login(Auth::None);
    let first = continues(login.request(&request(0, Some(1)), &discovery("FirstBurstLength=512\0X-foo=1\0")));
    assert_eq!(text_of(&first), "FirstBurstLength=Reject X-foo=NotUnderstood ");
}

#[test]
fn security_keys_after_the_security_stage_are_refused_and_names_may_not_change() {
    let mut late = login(Auth::None);
    let _ = continues(late.request(&request(0, Some(1)), &discovery("")));
    let reply = continues(late.request(&request(1, None), b"AuthMethod=CHAP\0CHAP_A=5\0"));
    assert_eq!(text_of(&reply), "AuthMethod=Reject CHAP_A=Reject MaxRecvDataSegmentLength=262144 ");
    // RFC 7143 section 13: names and session type belong to the leading request; said again they must say the same.
    let same = b"InitiatorName=IQN.1993-08.org.debian:01:abc\0SessionType=Discovery\0";
    let _ = continues(late.request(&request(1, None), same));
    let other = late.request(&request(1, Some(3)), b"InitiatorName=iqn.1993-08.org.debian:01:abd\0");
    assert_eq!(fails(other), Status::InitiatorError);
}

#[test]
fn a_key_given_twice_in_one_login_fails_it() {
    let twice = discovery("AuthMethod=None\0AuthMethod=None\0");
    assert_eq!(fails(login(Auth::None).request(&request(0, Some(1)), &twice)), Status::InitiatorError);
    let mut later = login(Auth::None);
    let _ = continues(later.request(&request(0, None), &discovery("AuthMethod=None\0")));
    assert_eq!(fails(later.request(&request(0, Some(1)), b"AuthMethod=None\0")), Status::InitiatorError);
}

#[test]
fn an_answer_longer_than_an_initiator_takes_during_login_fails_it() {
    let mut login = login(Auth::None);
    let _ = continues(login.request(&request(0, Some(1)), &discovery("")));
    let keys: String = (0..120).map(|number| format!("X-{}{number:03}=1\0", "k".repeat(56))).collect();
    let more = LoginRequest { more: true, ..request(1, None) };
    let (one, two) = keys.as_bytes().split_at(keys.len() / 2);
    let _ = continues(login.request(&more, one));
    assert_eq!(fails(login.request(&request(1, Some(3)), two)), Status::InitiatorError);
}

#[test]
fn limits_have_sane_defaults() {
    let limits = Limits::default();
    assert!(limits.unauthenticated < limits.connections && !limits.login_timeout.is_zero());
}

proptest::proptest! {
    #[test]
    fn any_login_conversation_ends_or_goes_on_without_a_panic(
        script in proptest::collection::vec(
            (proptest::array::uniform32(proptest::num::u8::ANY), proptest::bool::ANY,
             "(InitiatorName=iqn.2001-04.a:b|SessionType=Discovery|AuthMethod=CHAP|CHAP_A=5|CHAP_R=0x1|CHAP_N=a|[a-z=]{0,9}|\0){0,9}"),
            1..12)
    ) {
        let mut login = login(chap(true));
        for (bytes, tame, text) in script {
            let mut header = crate::portal::pdu::Header::new(3);
            header.0[..32].copy_from_slice(&bytes);
            let mut request = LoginRequest::decode(&header);
            if tame {
                request = LoginRequest { version_min: 0, isid: [0; 6], tsih: 0, cid: 0, ..request };
            }
            if let Progress::Admitted(..) = login.request(&request, text.as_bytes()) {
                panic!("admitted without a proof");
            }
        }
    }
}
