//! Configuration → what the portal knows: targets with their ports, and who may do what.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::lun::{Place, Running};
use crate::config::{self, Config, Digest, Frontend};
use crate::nexus::View;
use crate::portal::chap::{Algorithm, Chap, Credential};
use crate::portal::{self, Access, Auth, DigestPolicy, Grant, Parameters, Port, Target};
use crate::reactor::Reactors;

/// The targets of a configuration, with the LUNs that run; `shared`: what answers for absent LUNs, and the REPORT LUNS well
/// known logical unit.
pub(super) fn directory(
    config: &Config,
    running: &BTreeMap<Place, Running>,
    shared: &(Arc<Port>, Arc<Port>),
    reactors: &Reactors,
) -> portal::Directory {
    let targets = config.targets.iter().enumerate();
    let targets = targets.filter(|(_, (_, target))| target.frontend == Frontend::Portal);
    let targets = targets.map(|(index, (name, target))| {
        let luns: BTreeMap<u16, Arc<Port>> = target
            .luns
            .keys()
            .filter_map(|lun| {
                let place = Place { target: name.clone(), lun: *lun };
                running.get(&place).and_then(|running| Some((*lun, running.port()?)))
            })
            .collect();
        let target = Target {
            name: name.clone(),
            group: target.portal_group,
            addresses: target.addresses.clone(),
            access: access(target, &luns),
            luns,
            absent: Arc::clone(&shared.0),
            well_known: Some(Arc::clone(&shared.1)),
            parameters: parameters(&target.parameters, &config.limits),
            reactor: reactors.all()[index % reactors.all().len()].clone(),
        };
        (name.clone(), Arc::new(target))
    });
    portal::Directory {
        targets: targets.collect(),
        discovery: auth(&config.discovery),
        ..portal::Directory::default()
    }
}

fn access(target: &config::Target, luns: &BTreeMap<u16, Arc<Port>>) -> Access {
    let every: Vec<u16> = luns.keys().copied().collect();
    let initiators = target.initiators.iter().map(|(name, rights)| {
        let seen = match &rights.luns {
            Some(list) => every.iter().copied().filter(|lun| list.contains(lun)).collect(),
            None => every.clone(),
        };
        let view = View { luns: seen, read_only: rights.read_only.clone() };
        (name.clone(), Grant { auth: auth(&rights.login), view })
    });
    let anyone = target
        .open
        .then(|| Grant { auth: Auth::None, view: View { luns: every.clone(), read_only: Vec::new() } });
    Access { initiators: initiators.collect(), anyone }
}

fn auth(login: &config::Login) -> Auth {
    let credential =
        |chap: &config::Chap| Credential { user: chap.user.clone(), secret: chap.secret.clone() };
    match &login.chap {
        None => Auth::None,
        Some(chap) => Auth::Chap(Arc::new(Chap {
            initiator: credential(chap),
            target: login.mutual.as_ref().map(credential),
            algorithms: Algorithm::ALL.to_vec(),
        })),
    }
}

fn parameters(config: &config::Parameters, limits: &config::Limits) -> Parameters {
    let digest = |digest| match digest {
        Digest::Allowed => DigestPolicy::Either,
        Digest::None => DigestPolicy::Never,
        Digest::Required => DigestPolicy::Required,
    };
    Parameters {
        header_digest: digest(config.header_digest),
        data_digest: digest(config.data_digest),
        initial_r2t: config.initial_r2t,
        immediate_data: config.immediate_data,
        first_burst_length: config.first_burst_length,
        max_burst_length: config.max_burst_length,
        max_recv_data_segment_length: config.max_recv_data_segment_length,
        max_outstanding_r2t: config.max_outstanding_r2t,
        queue_depth: config.command_window,
        initial_depth: Parameters::default().initial_depth,
        nop_interval: limits.nop_interval,
        nop_timeout: limits.nop_timeout,
        data_out_timeout: limits.data_out_timeout,
    }
}
