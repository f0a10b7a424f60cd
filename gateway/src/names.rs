//! iSCSI names (RFC 7143 section 4.2.7, RFC 3722): prepared, checked, compared byte by byte.
//!
//! One function serves the configuration, the login, access rules and discovery, so that a name which is accepted anywhere
//! is the same name everywhere. The preparation is the iSCSI profile of stringprep: characters mapped to nothing, case
//! folding with NFKC, prohibited and unassigned characters, bidirectional rules.
//!
//! One step aside from RFC 3722: `_` is accepted. The profile prohibits it, but initiators in the field make up names
//! from host names that have one, and nothing is confused by it.

/// Longest iSCSI name, bytes of UTF-8.
const MAX: usize = 223;
/// Longest text that is looked at: preparation can make a name shorter.
const MAX_RAW: usize = 4 * MAX;

/// Why a text is no iSCSI name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// More than 223 bytes.
    #[error("is longer than 223 bytes")]
    TooLong,
    /// Not one of the three forms.
    #[error(
        "is no iSCSI name: it begins with none of iqn. eui. naa. (for example iqn.2026-01.com.example:name)"
    )]
    Form,
    /// `iqn.` without `yyyy-mm.` and a naming authority.
    #[error(
        "is no iqn. name: after iqn. come a year and month and a reversed domain, as in iqn.2026-01.com.example:name"
    )]
    Authority,
    /// `eui.` or `naa.` without its digits.
    #[error("has the wrong digits: eui. has 16 hexadecimal digits, naa. has 16 or 32")]
    Digits,
    /// A character that RFC 3722 prohibits.
    #[error("has the character {0:?}, which iSCSI names must not have (letters, digits, - . :)")]
    Character(char),
    /// Unassigned code points, or letters of both directions mixed (RFC 3722 sections 6 and 7).
    #[error("mixes or has characters that iSCSI names must not have (RFC 3722)")]
    Prohibited,
}

/// The normal form of an iSCSI name: `iqn.` (with its date and reversed domain), `eui.` (16 hexadecimal digits) or `naa.`
/// (16 or 32).
pub fn normalize(name: &str) -> Result<String, NameError> {
    if name.len() > MAX_RAW {
        return Err(NameError::TooLong);
    }
    // Said before the tables are asked, whose answer does not name the character.
    if let Some(bad) = name.chars().find(|c| prohibited(*c)) {
        return Err(NameError::Character(bad));
    }
    let name = stringprep::nameprep(name).map_err(|_which| NameError::Prohibited)?.into_owned();
    // What prepares to something else again has characters newer than the profile (Unicode 3.2), which it prohibits too.
    if stringprep::nameprep(&name).map_or(true, |again| again != name) {
        return Err(NameError::Prohibited);
    }
    // NFKC can bring up what was hidden in a compatibility character (a fullwidth slash).
    if let Some(bad) = name.chars().find(|c| prohibited(*c)) {
        return Err(NameError::Character(bad));
    }
    if name.len() > MAX {
        return Err(NameError::TooLong);
    }
    let hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match name.split_at_checked(4) {
        Some(("iqn.", rest)) if !iqn(rest) => Err(NameError::Authority),
        Some(("eui.", rest)) if rest.len() != 16 || !hex(rest) => Err(NameError::Digits),
        Some(("naa.", rest)) if !matches!(rest.len(), 16 | 32) || !hex(rest) => Err(NameError::Digits),
        Some(("iqn." | "eui." | "naa.", _)) => Ok(name),
        _ => Err(NameError::Form),
    }
}

/// ASCII that RFC 3722 section 6.2 prohibits (all but letters, digits, `-`, `.`, `:`; `_` see above), and the ideographic
/// full stop.
fn prohibited(c: char) -> bool {
    c == '\u{3002}' || c.is_ascii() && !c.is_ascii_alphanumeric() && !matches!(c, '-' | '.' | ':' | '_')
}

/// `yyyy-mm.` and a naming authority.
fn iqn(rest: &str) -> bool {
    let Some((date, authority)) = rest.split_once('.') else { return false };
    let date = date.as_bytes();
    let dated = date.len() == 7
        && date[4] == b'-'
        && date[..4].iter().chain(&date[5..]).all(u8::is_ascii_digit)
        && matches!(&date[5..], [b'0', b'1'..=b'9'] | [b'1', b'0'..=b'2']);
    dated && authority.split(':').next().is_some_and(|domain| !domain.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_lower_case() {
        assert_eq!(normalize("IQN.2001-04.com.Example:Disk").as_deref(), Ok("iqn.2001-04.com.example:disk"));
        assert_eq!(normalize("eui.02004567A425678D").as_deref(), Ok("eui.02004567a425678d"));
        assert_eq!(normalize("naa.52004567BA64678D").as_deref(), Ok("naa.52004567ba64678d"));
    }

    #[test]
    fn what_is_no_name_is_refused() {
        let long = format!("iqn.2001-04.com.example:{}", "x".repeat(MAX));
        for bad in [
            "",
            "iqn",
            "iqn.",
            "iqn.2001-13.com.a",
            "iqn.2001-00.com.a",
            "iqn.01-04.com.a",
            "iqn.2001-04.",
            "iqn.2001-04.com.a b",
            "iqn.2001-04.com/a",
            "eui.0200",
            "naa.52",
            "wwn.5",
            "eui.02004567a425678g",
            &long,
        ] {
            assert!(normalize(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_names_that_initiators_make_up_are_accepted() {
        for good in [
            "iqn.1991-05.com.microsoft:win-1",
            "iqn.1998-01.com.vmware:esx01-4f2d",
            "iqn.1993-08.org.debian:01:82d8f1c6b8a",
            "iqn.2008-11.org.linux-kvm:vm_1",
            "iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-test",
        ] {
            assert!(normalize(good).is_ok(), "{good}");
        }
    }

    #[test]
    fn letters_outside_ascii_are_prepared_as_rfc_3722_has_it() {
        let same = |a: &str, b: &str| assert_eq!(normalize(a), normalize(b), "{a} {b}");
        // Table B.2: case folding; NFKC: composed and decomposed, fullwidth; table B.1: soft hyphen is mapped to nothing.
        same("iqn.2001-04.com.example:STRASSE", "iqn.2001-04.com.example:stra\u{df}e");
        same("iqn.2001-04.com.example:caf\u{e9}", "iqn.2001-04.com.example:CAFE\u{301}");
        same("\u{ff29}qn.2001-04.com.example:a", "iqn.2001-04.com.example:a");
        same("iqn.2001-04.com.exam\u{ad}ple:a", "iqn.2001-04.com.example:a");
        for (bad, why) in [
            ("iqn.2001-04.com.example:a\u{3002}b", NameError::Character('\u{3002}')),
            ("iqn.2001-04.com.example:a\u{ff0f}b", NameError::Character('/')),
            ("iqn.2001-04.com.example:a\u{a0}b", NameError::Character(' ')),
            ("iqn.2001-04.com.example:a\u{202e}b", NameError::Prohibited),
            ("iqn.2001-04.com.example:a\u{e000}b", NameError::Prohibited),
            ("iqn.2001-04.com.example:a\u{5d0}", NameError::Prohibited),
        ] {
            assert_eq!(normalize(bad), Err(why), "{bad:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let why = |name: &str| normalize(name).unwrap_err().to_string();
        assert!(why("iqn.2001-04.com.example:a b").contains("' '"));
        assert!(why("disk1").contains("iqn. eui. naa."));
        assert!(why("iqn.2001-13.com.example").contains("year and month"));
        assert!(why("naa.123").contains("16 or 32"));
        assert!(why(&format!("iqn.2001-04.com.example:{}", "x".repeat(MAX))).contains("223"));
    }

    #[test]
    fn a_name_of_223_bytes_is_the_longest() {
        let longest = format!("iqn.2001-04.com.example:{}", "x".repeat(MAX - 24));
        assert_eq!(longest.len(), MAX);
        assert!(normalize(&longest).is_ok());
        assert_eq!(normalize(&format!("{longest}x")), Err(NameError::TooLong));
    }

    proptest::proptest! {
        #[test]
        fn a_normal_form_is_its_own_normal_form(tail in "[a-zA-Z0-9:.\\-\u{80}-\u{2fff}]{0,40}") {
            if let Ok(name) = normalize(&format!("iqn.2001-04.com.example:{tail}")) {
                proptest::prop_assert_eq!(normalize(&name), Ok(name));
            }
        }
    }
}
