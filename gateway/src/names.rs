//! iSCSI names (RFC 7143 section 4.2.7, RFC 3722): normalised to lower case, checked, compared byte by byte.

/// Longest iSCSI name, bytes.
const MAX: usize = 223;

/// The normal form of an iSCSI name, or `None` when it is not one.
///
/// Accepted are `iqn.` (with its date and reversed domain), `eui.` (16 hexadecimal digits) and `naa.` (16 or 32).
/// Letters outside ASCII are allowed as stringprep has them after case folding; space and most punctuation are not.
pub fn normalize(name: &str) -> Option<String> {
    if name.is_empty() || name.len() > MAX {
        return None;
    }
    let name = name.to_lowercase();
    let hex = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let valid = match name.split_at_checked(4)? {
        ("iqn.", rest) => iqn(rest),
        ("eui.", rest) => rest.len() == 16 && hex(rest),
        ("naa.", rest) => matches!(rest.len(), 16 | 32) && hex(rest),
        _ => false,
    };
    (valid && name.len() <= MAX).then_some(name)
}

/// `yyyy-mm.` and a naming authority, with only the characters that RFC 3722 leaves.
fn iqn(rest: &str) -> bool {
    let mut parts = rest.splitn(2, '.');
    let (Some(date), Some(authority)) = (parts.next(), parts.next()) else { return false };
    let date = date.as_bytes();
    let dated = date.len() == 7
        && date[4] == b'-'
        && date[..4].iter().chain(&date[5..]).all(u8::is_ascii_digit)
        && matches!(&date[5..], [b'0', b'1'..=b'9'] | [b'1', b'0'..=b'2']);
    let character = |c: char| match c {
        '-' | '.' | ':' => true,
        // Not in RFC 3722, yet in names that VMware and others make up by themselves.
        '_' => true,
        c if c.is_ascii() => c.is_ascii_alphanumeric(),
        c => c.is_alphanumeric(),
    };
    dated && !authority.is_empty() && authority.chars().all(character)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_compared_in_lower_case() {
        assert_eq!(
            normalize("IQN.2001-04.com.Example:Disk").as_deref(),
            Some("iqn.2001-04.com.example:disk")
        );
        assert_eq!(normalize("eui.02004567A425678D").as_deref(), Some("eui.02004567a425678d"));
        assert_eq!(normalize("naa.52004567BA64678D").as_deref(), Some("naa.52004567ba64678d"));
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
            assert_eq!(normalize(bad), None, "{bad}");
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
            assert!(normalize(good).is_some(), "{good}");
        }
    }
}
