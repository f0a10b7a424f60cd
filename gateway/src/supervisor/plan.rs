//! What a configuration asks for, in the supervisor's terms, and what two of them differ in.

use std::collections::BTreeMap;

use ring::Options;

use super::lun::{Place, Spec};
use crate::config::{Config, Limits};

/// Every LUN, at its place.
pub(super) fn wanted(config: &Config) -> BTreeMap<Place, Spec> {
    let places = config.targets.iter().flat_map(|(target, settings)| {
        settings.luns.iter().filter_map(|(lun, name)| {
            let disk = config.disks.get(name)?.clone();
            let portal_group = settings.portal_group;
            Some((
                Place { target: target.clone(), lun: *lun },
                Spec { name: name.clone(), frontend: settings.frontend, portal_group, disk },
            ))
        })
    });
    places.collect()
}

/// The rings of LUNs started from now on.
pub(super) fn options(config: &Config) -> Options {
    let limits = &config.limits;
    let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
    Options {
        command_area: size(limits.command_area),
        data_area: size(limits.data_area),
        block: size(limits.block),
        floor: size(limits.idle_floor),
        largest_command: size(limits.largest_command),
        ..Options::default()
    }
}

/// What a reload cannot change.
pub(super) fn restart_notes(old: &Config, new: &Config) -> Vec<&'static str> {
    let (a, b) = (&old.limits, &new.limits);
    let sizes = (a.data_area, a.command_area, a.block, a.idle_floor, a.largest_command)
        != (b.data_area, b.command_area, b.block, b.idle_floor, b.largest_command);
    let counts = |limits: &Limits| {
        let logins = (limits.logins, limits.logins_per_address, limits.login_timeout);
        (limits.connections, limits.sessions, limits.sessions_per_initiator, logins)
    };
    let portal = counts(a) != counts(b);
    let changes = [
        (old.listen != new.listen, "listen is read at start only; restart to change it"),
        (old.admin != new.admin, "admin is read at start only; restart to change it"),
        (old.state != new.state, "state is read at start only; restart to change it"),
        (old.reactors != new.reactors, "reactors is read at start only; restart to change it"),
        (old.gather != new.gather, "gather is read at start only; restart to change it"),
        (sizes, "the sizes in limits count for LUNs started from now on"),
        (portal, "the counts and login_timeout in limits are read at start only; restart to change them"),
    ];
    changes.into_iter().filter_map(|(changed, note)| changed.then_some(note)).collect()
}
