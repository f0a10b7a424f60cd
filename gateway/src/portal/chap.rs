//! CHAP as iSCSI uses it (RFC 7143 section 12.1.3, RFC 1994; SHA-2 and SHA-3 from the IANA registry).
//!
//! One-way authenticates the initiator, mutual both ends. A challenge that comes back as it was sent (reflection) is
//! refused, and so is a target that would prove itself with the initiator's own secret.

use md5::Md5;
use sha1::Sha1;
use sha2::Sha256;
use sha2::digest::Digest;
use sha3::Sha3_256;
use subtle::ConstantTimeEq;

use crate::secret::Secret;

/// Longest challenge taken, bytes (RFC 7143 section 12.1.3).
pub const MAX_CHALLENGE: usize = 1024;

/// A hash that CHAP may use, by its IANA number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// 5, which every implementation has.
    Md5 = 5,
    /// 6.
    Sha1 = 6,
    /// 7.
    Sha256 = 7,
    /// 8.
    Sha3 = 8,
}

impl Algorithm {
    /// All, the strongest first.
    pub const ALL: [Self; 4] = [Self::Sha3, Self::Sha256, Self::Sha1, Self::Md5];

    /// The IANA number.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Bytes of a response, and of the challenges sent here.
    fn len(self) -> usize {
        match self {
            Self::Md5 => 16,
            Self::Sha1 => 20,
            Self::Sha256 | Self::Sha3 => 32,
        }
    }

    /// The response: hash of identifier, secret and challenge.
    pub fn respond(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn hash<D: Digest>(parts: [&[u8]; 3]) -> Vec<u8> {
            let mut hash = D::new();
            for part in parts {
                hash.update(part);
            }
            hash.finalize().to_vec()
        }
        let parts = [&[identifier][..], secret, challenge];
        match self {
            Self::Md5 => hash::<Md5>(parts),
            Self::Sha1 => hash::<Sha1>(parts),
            Self::Sha256 => hash::<Sha256>(parts),
            Self::Sha3 => hash::<Sha3_256>(parts),
        }
    }

    /// The best of `allowed` that is in the initiator's list (`CHAP_A=5,7`).
    pub fn choose(offer: &str, allowed: &[Self]) -> Option<Self> {
        let offered = |algorithm: &Self| {
            offer
                .split(',')
                .any(|number| super::text::decode_number(number) == Some(u64::from(algorithm.number())))
        };
        Self::ALL.into_iter().find(|algorithm| allowed.contains(algorithm) && offered(algorithm))
    }
}

/// A user name and its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// `CHAP_N`.
    pub user: String,
    /// The shared secret.
    pub secret: Secret,
}

/// What an initiator must prove, and what is proved to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chap {
    /// The initiator's.
    pub initiator: Credential,
    /// The target's, for mutual CHAP.
    pub target: Option<Credential>,
    /// Hashes allowed.
    pub algorithms: Vec<Algorithm>,
}

/// Why authentication failed. Says nothing about which part was wrong to the peer; the counters know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChapError {
    /// Name or response is wrong.
    #[error("the initiator did not prove itself")]
    Denied,
    /// The initiator sent the target's own challenge back.
    #[error("the target's challenge was reflected")]
    Reflected,
    /// Both directions use one secret.
    #[error("the initiator's secret equals the target's")]
    SameSecret,
    /// The initiator wants the target to prove itself, and it has no credential.
    #[error("mutual authentication is not set up")]
    NoTargetCredential,
    /// A value is no binary number, or too long.
    #[error("malformed CHAP value")]
    Malformed,
}

/// A challenge in flight.
#[derive(Debug)]
pub struct Challenge {
    algorithm: Algorithm,
    identifier: u8,
    challenge: Vec<u8>,
}

/// The target's proof, for mutual CHAP.
#[derive(Debug, PartialEq, Eq)]
pub struct Proof {
    /// `CHAP_N`.
    pub user: String,
    /// `CHAP_R`.
    pub response: Vec<u8>,
}

/// The initiator's answer to a challenge, as text values.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// `CHAP_N`.
    pub user: &'a str,
    /// `CHAP_R`.
    pub response: &'a str,
    /// `CHAP_I` and `CHAP_C`, when the target shall prove itself too.
    pub challenge: Option<(&'a str, &'a str)>,
}

impl Challenge {
    /// A new challenge from `random` bytes (at least 33 of them).
    pub fn new(algorithm: Algorithm, random: &[u8; 33]) -> Self {
        Self { algorithm, identifier: random[32], challenge: random[..algorithm.len()].to_vec() }
    }

    /// `CHAP_I`.
    pub fn identifier(&self) -> u8 {
        self.identifier
    }

    /// `CHAP_C`.
    pub fn bytes(&self) -> &[u8] {
        &self.challenge
    }

    /// Checks the initiator's answer and, if asked, proves the target.
    pub fn verify(&self, chap: &Chap, answer: Answer<'_>) -> Result<Option<Proof>, ChapError> {
        let response = super::text::decode_binary(answer.response, 64).ok_or(ChapError::Malformed)?;
        let expected =
            self.algorithm.respond(self.identifier, chap.initiator.secret.expose(), &self.challenge);
        // Both are always looked at, so that time does not tell a wrong name from a wrong secret.
        let named = answer.user.as_bytes().ct_eq(chap.initiator.user.as_bytes());
        let proved = response.ct_eq(&expected);
        if !bool::from(named & proved) {
            return Err(ChapError::Denied);
        }
        let Some((identifier, challenge)) = answer.challenge else { return Ok(None) };
        let target = chap.target.as_ref().ok_or(ChapError::NoTargetCredential)?;
        if target.secret == chap.initiator.secret {
            return Err(ChapError::SameSecret);
        }
        let identifier = super::text::decode_number(identifier).and_then(|number| u8::try_from(number).ok());
        let identifier = identifier.ok_or(ChapError::Malformed)?;
        let challenge = super::text::decode_binary(challenge, MAX_CHALLENGE).ok_or(ChapError::Malformed)?;
        if challenge == self.challenge {
            return Err(ChapError::Reflected);
        }
        let response = self.algorithm.respond(identifier, target.secret.expose(), &challenge);
        Ok(Some(Proof { user: target.user.clone(), response }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::portal::text::encode_hex;

    fn chap() -> Chap {
        let credential =
            |user: &str, secret: &str| Credential { user: user.into(), secret: Secret::new(secret) };
        Chap {
            initiator: credential("alice", "initiatorsecret1"),
            target: Some(credential("target", "targetsecret1234")),
            algorithms: Algorithm::ALL.to_vec(),
        }
    }

    fn answer<'a>(response: &'a str, challenge: Option<(&'a str, &'a str)>) -> Answer<'a> {
        Answer { user: "alice", response, challenge }
    }

    #[test]
    fn md5_gives_the_known_answer() {
        // md5("\x01" "secret" "\x10\x20"), worked out with another tool.
        let expected = "0xff8ea11badc75761a23723674d244201";
        assert_eq!(encode_hex(&Algorithm::Md5.respond(1, b"secret", &[0x10, 0x20])), expected);
    }

    #[test]
    fn each_algorithm_accepts_the_right_response_and_no_other() {
        for algorithm in Algorithm::ALL {
            let challenge = Challenge::new(algorithm, &[7; 33]);
            let mut response = algorithm.respond(7, b"initiatorsecret1", challenge.bytes());
            assert_eq!(challenge.verify(&chap(), answer(&encode_hex(&response), None)), Ok(None));
            response[0] ^= 1;
            let wrong = challenge.verify(&chap(), answer(&encode_hex(&response), None));
            assert_eq!(wrong, Err(ChapError::Denied));
        }
    }

    #[test]
    fn the_strongest_common_algorithm_is_chosen() {
        assert_eq!(Algorithm::choose("5,6,7", &Algorithm::ALL), Some(Algorithm::Sha256));
        assert_eq!(Algorithm::choose("5", &Algorithm::ALL), Some(Algorithm::Md5));
        assert_eq!(Algorithm::choose("5", &[Algorithm::Sha3]), None);
        assert_eq!(Algorithm::choose("x,,9", &Algorithm::ALL), None);
    }

    #[test]
    fn a_wrong_user_name_is_denied_even_with_the_right_response() {
        let challenge = Challenge::new(Algorithm::Md5, &[7; 33]);
        let response = encode_hex(&Algorithm::Md5.respond(7, b"initiatorsecret1", challenge.bytes()));
        let answer = Answer { user: "bob", response: &response, challenge: None };
        assert_eq!(challenge.verify(&chap(), answer), Err(ChapError::Denied));
    }

    #[test]
    fn mutual_chap_proves_the_target() {
        let challenge = Challenge::new(Algorithm::Sha1, &[7; 33]);
        let response = encode_hex(&Algorithm::Sha1.respond(7, b"initiatorsecret1", challenge.bytes()));
        let proof = challenge.verify(&chap(), answer(&response, Some(("0x21", "0x0102")))).unwrap().unwrap();
        assert_eq!(proof.user, "target");
        assert_eq!(proof.response, Algorithm::Sha1.respond(0x21, b"targetsecret1234", &[1, 2]));
    }

    #[test]
    fn a_reflected_challenge_and_a_shared_secret_are_refused() {
        let challenge = Challenge::new(Algorithm::Md5, &[7; 33]);
        let response = encode_hex(&Algorithm::Md5.respond(7, b"initiatorsecret1", challenge.bytes()));
        let reflected = encode_hex(challenge.bytes());
        let refused = challenge.verify(&chap(), answer(&response, Some(("9", &reflected))));
        assert_eq!(refused, Err(ChapError::Reflected));

        let mut same = chap();
        same.target = Some(Credential { user: "target".into(), secret: Secret::new("initiatorsecret1") });
        let refused = challenge.verify(&same, answer(&response, Some(("9", "0x01"))));
        assert_eq!(refused, Err(ChapError::SameSecret));
    }

    #[test]
    fn a_secret_is_never_shown() {
        assert!(!format!("{:?}", chap()).contains("secret1"));
    }
}
