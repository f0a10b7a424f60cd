//! Sizes and durations as people write them: `10GiB`, `1.5TB`, `500ms`, `5s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A number of bytes. Text: digits with an optional fraction and a unit: `B`, `KiB` `MiB` `GiB` `TiB` (powers of 1024;
/// `K` `M` `G` `T` alone mean these, as in Ceph), `KB` `MB` `GB` `TB` (powers of 1000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

impl FromStr for Bytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("\"{text}\" is not a size; write for example 512, 64KiB, 10GiB or 1.5TB");
        let (number, unit) = split(text);
        let scale: u64 = match unit.to_ascii_lowercase().as_str() {
            "" | "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            "p" | "pib" => 1 << 50,
            "kb" => 1_000,
            "mb" => 1_000_000,
            "gb" => 1_000_000_000,
            "tb" => 1_000_000_000_000,
            _ => return Err(bad()),
        };
        scaled(number, scale).map(Self).ok_or_else(bad)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [(&str, u64); 4] =
            [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        match UNITS.iter().find(|(_, scale)| self.0 >= *scale) {
            Some((unit, scale)) if self.0.is_multiple_of(*scale) => write!(f, "{}{unit}", self.0 / scale),
            Some((unit, scale)) => write!(f, "{:.1}{unit}", self.0 as f64 / *scale as f64),
            None => write!(f, "{}B", self.0),
        }
    }
}

/// A duration. Text: a number with a unit: `ms`, `s`, `m`, `h`; a bare number means seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

impl FromStr for Time {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || format!("\"{text}\" is not a duration; write for example 500ms, 5s or 2m");
        let (number, unit) = split(text);
        let milliseconds: u64 = match unit {
            "ms" => 1,
            "" | "s" => 1_000,
            "m" => 60_000,
            "h" => 3_600_000,
            _ => return Err(bad()),
        };
        scaled(number, milliseconds).map(|ms| Self(Duration::from_millis(ms))).ok_or_else(bad)
    }
}

fn split(text: &str) -> (&str, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    (&text[..end], text[end..].trim_start())
}

fn scaled(number: &str, scale: u64) -> Option<u64> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    if fraction.is_empty() {
        return (!number.ends_with('.')).then_some(whole);
    }
    let digits = u32::try_from(fraction.len()).ok().filter(|digits| *digits <= 9)?;
    let part = u128::from(fraction.parse::<u64>().ok()?) * u128::from(scale) / 10u128.pow(digits);
    whole.checked_add(u64::try_from(part).ok()?)
}

struct Text<T>(std::marker::PhantomData<T>, &'static str);

impl<T: FromStr<Err = String>> Visitor<'_> for Text<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.1)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        text.parse().map_err(E::custom)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        number.to_string().parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(std::marker::PhantomData, "a size such as 64KiB or 10GiB"))
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(Text(std::marker::PhantomData, "a duration such as 500ms or 5s"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [
            ("512", 512),
            ("64KiB", 65536),
            ("10G", 10 << 30),
            ("1.5 GiB", 3 << 29),
            ("2TB", 2_000_000_000_000),
        ] {
            assert_eq!(text.parse(), Ok(Bytes(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "GiB", "-1", "1.", "1.2.3G", "10 elephants", "99999999999T"] {
            assert!(text.parse::<Bytes>().is_err(), "{text}");
        }
    }

    #[test]
    fn durations_have_units_and_default_to_seconds() {
        for (text, milliseconds) in
            [("500ms", 500), ("5", 5_000), ("5s", 5_000), ("0.5s", 500), ("2m", 120_000)]
        {
            assert_eq!(text.parse(), Ok(Time(Duration::from_millis(milliseconds))), "{text}");
        }
        assert!("5 parsecs".parse::<Time>().is_err());
    }

    #[test]
    fn a_size_is_shown_in_the_largest_unit_that_fits() {
        assert_eq!(Bytes(10 << 30).to_string(), "10GiB");
        assert_eq!(Bytes(1536).to_string(), "1.5KiB");
        assert_eq!(Bytes(7).to_string(), "7B");
    }
}
