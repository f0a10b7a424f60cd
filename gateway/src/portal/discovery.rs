//! SendTargets (RFC 7143 appendix C): which targets an initiator may know of, and where they are.

use std::net::{IpAddr, SocketAddr};

use super::target::{Directory, Target};
use super::text;
use crate::names;

/// The text that answers `SendTargets=value`, or `None` when the value is not allowed.
///
/// `session` is the target of a normal session, which may ask for itself alone (an empty value or its own name).
/// `local` is the address that the initiator reached, told for targets that name no addresses.
pub fn send_targets(
    directory: &Directory,
    initiator: &str,
    session: Option<&str>,
    value: &str,
    local: SocketAddr,
) -> Option<Vec<u8>> {
    let wanted = match (value, session) {
        ("All", None) => None,
        ("All", Some(_)) | ("", None) => return None,
        ("", Some(own)) => Some(own.to_owned()),
        (name, session) => {
            let name = names::normalize(name).unwrap_or_default();
            if session.is_some_and(|own| own != name) {
                return Some(Vec::new());
            }
            Some(name)
        }
    };
    let mut reply = Vec::new();
    let visible = |target: &&std::sync::Arc<Target>| {
        target.access.grant(initiator).is_some() && wanted.as_ref().is_none_or(|name| *name == target.name)
    };
    for target in directory.targets.values().filter(visible) {
        text::push(&mut reply, "TargetName", &target.name);
        let own = [local];
        // A target that has moved for good is where it went; one that is away for a while is told so when it is logged in to.
        let moved = directory.redirect(&target.name).filter(|redirect| redirect.permanent);
        let moved = moved.map(|redirect| [redirect.address]);
        let addresses = match &moved {
            Some(address) => &address[..],
            None if target.addresses.is_empty() => &own[..],
            None => &target.addresses,
        };
        for address in addresses {
            // `SocketAddr` writes IPv6 in brackets, as section 13.8 wants it; a wildcard means the address reached.
            let ip = if address.ip().is_unspecified() { local.ip() } else { address.ip() };
            let address = SocketAddr::new(plain(ip), address.port());
            text::push(&mut reply, "TargetAddress", format_args!("{address},{}", target.group));
        }
    }
    Some(reply)
}

/// An IPv4 address reached through an IPv6 socket, as IPv4.
fn plain(ip: IpAddr) -> IpAddr {
    ip.to_canonical()
}
