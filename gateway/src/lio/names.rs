//! What our objects are called, and how they are told from other owners'.
//!
//! A backstore is ours when it lies in our HBA and its `dev_config` begins with `rbdgate/`, or is still empty, as it is between
//! the making of the folder and the first attribute. A target is ours when the configuration names it and no LUN of it belongs
//! to another owner, or when one of its LUNs is a backstore of ours.

use sha2::{Digest, Sha256};

/// Number of our HBA: out of the way of those that administration tools count up from 0.
pub const HBA: u32 = 3720;
/// What `dev_config` begins with. The part before the `/` is what TCMU calls the subtype: other daemons pass it over.
pub const OWNER: &str = "rbdgate/";
/// Name of the links that we make.
pub const LINK: &str = "rbdgate";
/// Name of the target port group of each backstore.
pub const GROUP: &str = "rbdgate";

/// Longest `dev_config`: the kernel's 256 bytes hold a NUL too.
const LONGEST_CONFIG: usize = 255;
/// Longest name of a backstore.
const LONGEST_NAME: usize = 64;

/// Our HBA's folder under `core`.
pub fn hba() -> String {
    format!("user_{HBA}")
}

/// Path of a backstore.
pub fn backstore(name: &str) -> String {
    format!("core/{}/{name}", hba())
}

/// Name of the backstore of the disk that the configuration calls `disk`: a folder's name without what LIO's tools or
/// its `control` attribute take for a separator. Different disks have different names.
pub fn backstore_of(disk: &str) -> String {
    shorten(escape(disk, |c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.')), LONGEST_NAME)
}

/// The `dev_config` that says: ours, for this store. `control` separates its values by commas and line ends.
pub fn config_of(store: &str) -> String {
    let rest = LONGEST_CONFIG - OWNER.len();
    let store = escape(store, |c| c.is_ascii_graphic() && !matches!(c, ',' | '%' | '"' | '\\'));
    format!("{OWNER}{}", shorten(store, rest))
}

/// Whether a `dev_config` says that the device is ours.
pub fn is_ours(config: &str) -> bool {
    config.starts_with(OWNER)
}

/// Every other byte as `%XX`.
fn escape(text: &str, plain: impl Fn(char) -> bool) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        if plain(character) {
            escaped.push(character);
        } else {
            let mut buffer = [0; 4];
            let bytes = character.encode_utf8(&mut buffer).bytes();
            escaped.extend(bytes.map(|byte| format!("%{byte:02X}")));
        }
    }
    // A name of dots is a folder's own, or its parent's.
    if escaped.bytes().all(|byte| byte == b'.') { escaped.replace('.', "%2E") } else { escaped }
}

/// The beginning and a hash of the whole, when it is too long.
fn shorten(text: String, longest: usize) -> String {
    if text.len() <= longest {
        return text;
    }
    let hash: [u8; 32] = Sha256::digest(text.as_bytes()).into();
    let hash: String = hash[..12].iter().map(|byte| format!("{byte:02x}")).collect();
    // All ASCII by now.
    format!("{}%{hash}", &text[..longest - hash.len() - 1])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn plain_names_stay_as_they_are() {
        assert_eq!(backstore_of("vm1"), "vm1");
        assert_eq!(config_of("rbd:pool/name space/vm1"), "rbdgate/rbd:pool/name%20space/vm1");
        assert_eq!(backstore("vm1"), "core/user_3720/vm1");
    }

    #[test]
    fn no_name_leaves_its_folder() {
        assert_eq!(backstore_of("../x:y"), "..%2Fx%3Ay");
        assert_eq!(backstore_of(".."), "%2E%2E");
    }

    proptest! {
        #[test]
        fn different_disks_have_different_short_names(one in ".{1,200}", two in ".{1,200}") {
            let (a, b) = (backstore_of(&one), backstore_of(&two));
            prop_assert_eq!(one == two, a == b);
            prop_assert!(a.len() <= LONGEST_NAME && !a.contains(['/', ':', ',']) && !a.is_empty());
            let config = config_of(&one);
            prop_assert!(is_ours(&config) && config.len() <= LONGEST_CONFIG);
            prop_assert!(!config.contains([',', '\n', '\0']));
            prop_assert_eq!(one == two, config == config_of(&two));
        }
    }
}
