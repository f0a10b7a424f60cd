//! Text of login and text PDUs (RFC 7143 section 6.1): `key=value` pairs, each ended by a zero byte.
//!
//! Nothing here is sized by the peer: a pair longer than the standard allows is an error, and so are more pairs than
//! any login needs.

use std::fmt::Display;

/// Most pairs taken from one exchange.
const MAX_PAIRS: usize = 128;
/// Longest key name (RFC 7143 section 6.1).
const MAX_KEY: usize = 63;
/// Longest value: a list, or a large binary value of 1024 bytes in hexadecimal, with room to spare.
const MAX_VALUE: usize = 8192;
/// Longest simple value, or item of a list (RFC 7143 section 6.1).
const MAX_ITEM: usize = 255;

/// What is wrong with a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// Not UTF-8, or a pair without `=`, or a key name with characters it must not have.
    #[error("malformed text")]
    Malformed,
    /// A key, value or list longer than allowed.
    #[error("text too long")]
    TooLong,
    /// The same key twice in one exchange.
    #[error("a key was given twice")]
    Twice,
}

/// Splits a text into pairs, in order. The last zero byte may be missing; empty pairs are skipped.
pub fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    for pair in text.split(|&byte| byte == 0).filter(|pair| !pair.is_empty()) {
        let pair = std::str::from_utf8(pair).map_err(|_ignored| TextError::Malformed)?;
        let (key, value) = pair.split_once('=').ok_or(TextError::Malformed)?;
        let binary = ["0x", "0X", "0b", "0B"].iter().any(|prefix| value.starts_with(prefix));
        let long = value.len() > MAX_VALUE || !binary && value.split(',').any(|item| item.len() > MAX_ITEM);
        if key.len() > MAX_KEY || long || pairs.len() == MAX_PAIRS {
            return Err(TextError::TooLong);
        }
        let name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '+' | '@' | '_' | '#');
        if key.is_empty() || !key.chars().all(name) {
            return Err(TextError::Malformed);
        }
        // Section 6.2: a key is offered, answered or declared once.
        if pairs.iter().any(|(other, _)| *other == key) {
            return Err(TextError::Twice);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Appends a pair with its zero byte.
pub fn push(into: &mut Vec<u8>, key: &str, value: impl Display) {
    into.extend_from_slice(format!("{key}={value}\0").as_bytes());
}

/// A binary value: `0x` hexadecimal or `0b` base64 (RFC 7143 section 6.1), at most `limit` bytes.
pub fn decode_binary(value: &str, limit: usize) -> Option<Vec<u8>> {
    let bytes = value.as_bytes();
    let (prefix, digits) = (bytes.get(..2)?, bytes.get(2..)?);
    if digits.len() > limit.checked_mul(2)?.checked_add(4)? {
        return None;
    }
    let decoded = match prefix {
        b"0x" | b"0X" => decode_hex(digits)?,
        b"0b" | b"0B" => decode_base64(digits)?,
        _ => return None,
    };
    (decoded.len() <= limit).then_some(decoded)
}

/// A small number, decimal or hexadecimal.
pub fn decode_number(value: &str) -> Option<u64> {
    let (digits, radix) = match value.strip_prefix("0x").or_else(|| value.strip_prefix("0X")) {
        Some(digits) => (digits, 16),
        None => (value, 10),
    };
    // `from_str_radix` takes a sign, the standard does not.
    digits.bytes().all(|byte| byte.is_ascii_hexdigit()).then_some(())?;
    u64::from_str_radix(digits, radix).ok()
}

/// Hexadecimal with its `0x`.
pub fn encode_hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 + bytes.len() * 2);
    text.push_str("0x");
    for byte in bytes {
        for nibble in [byte >> 4, byte & 15] {
            text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    text
}

fn decode_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let nibble = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    // An odd number of digits has an unwritten leading zero.
    let (first, rest) = digits.split_at(digits.len() % 2);
    let mut bytes = Vec::with_capacity(digits.len() / 2 + 1);
    for &digit in first {
        bytes.push(nibble(digit)?);
    }
    for pair in rest.chunks_exact(2) {
        bytes.push(nibble(pair[0])? << 4 | nibble(pair[1])?);
    }
    (!bytes.is_empty()).then_some(bytes)
}

fn decode_base64(digits: &[u8]) -> Option<Vec<u8>> {
    let body = match digits {
        [body @ .., b'=', b'='] | [body @ .., b'='] if digits.len().is_multiple_of(4) => body,
        body => body,
    };
    let mut bytes = Vec::with_capacity(body.len() * 3 / 4);
    let (mut bits, mut held) = (0u32, 0);
    for &digit in body {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held) as u8);
        }
    }
    // A single left-over digit cannot be, and left-over bits are zero.
    (held < 6 && bits & ((1 << held) - 1) == 0 && !bytes.is_empty()).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pairs_are_split_at_zero_bytes_and_the_first_equals_sign() {
        assert_eq!(parse(b"A=1\0B=x=y\0\0").unwrap(), [("A", "1"), ("B", "x=y")]);
        assert_eq!(parse(b"A=").unwrap(), [("A", "")]);
    }

    #[test]
    fn malformed_and_oversized_texts_are_errors() {
        assert_eq!(parse(b"novalue\0"), Err(TextError::Malformed));
        assert_eq!(parse(b"=v\0"), Err(TextError::Malformed));
        assert_eq!(parse(b"A=\xff\0"), Err(TextError::Malformed));
        assert_eq!(parse(b"A B=1\0"), Err(TextError::Malformed));
        assert_eq!(parse(format!("{}=1", "k".repeat(64)).as_bytes()), Err(TextError::TooLong));
        let many: String = (0..=MAX_PAIRS).map(|number| format!("K{number}=1\0")).collect();
        assert_eq!(parse(many.as_bytes()), Err(TextError::TooLong));
        assert_eq!(parse(b"A=1\0B=2\0A=1\0"), Err(TextError::Twice));
        let value = |len: usize| format!("A={}", "v".repeat(len)).into_bytes();
        assert!(parse(&value(255)).is_ok());
        assert_eq!(
            parse(&value(256)),
            Err(TextError::TooLong),
            "RFC 7143 section 6.1: text values have at most 255 bytes"
        );
        assert!(parse(format!("A=0x{}", "0".repeat(2048)).as_bytes()).is_ok(), "a large binary value");
    }

    #[test]
    fn binary_values_come_in_hexadecimal_and_base64() {
        assert_eq!(decode_binary("0x0aFf", 8).unwrap(), [0x0a, 0xff]);
        assert_eq!(decode_binary("0Xabc", 8).unwrap(), [0x0a, 0xbc]);
        assert_eq!(decode_binary("0bAQID", 8).unwrap(), [1, 2, 3]);
        assert_eq!(decode_binary("0bAQ==", 8).unwrap(), [1]);
        assert_eq!(decode_binary("0bAQI", 8).unwrap(), [1, 2]);
        for bad in ["", "0", "0x", "0b", "0xg0", "0b*", "0bA", "0bAR==", "12", "0x000102030405060708"] {
            assert_eq!(decode_binary(bad, 8), None, "{bad}");
        }
    }

    #[test]
    fn numbers_are_decimal_or_hexadecimal_without_a_sign() {
        assert_eq!(decode_number("262144"), Some(262_144));
        assert_eq!(decode_number("0x40"), Some(64));
        for bad in ["", "+5", "-1", "0x", "1k", "99999999999999999999"] {
            assert_eq!(decode_number(bad), None, "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_parse_or_fail_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(pairs) = parse(&bytes) {
                for (key, value) in pairs {
                    let _ = (decode_binary(value, 64), decode_number(key));
                }
            }
        }

        #[test]
        fn hexadecimal_comes_back(bytes in proptest::collection::vec(any::<u8>(), 1..64)) {
            prop_assert_eq!(decode_binary(&encode_hex(&bytes), 64), Some(bytes));
        }
    }
}
