//! What the kernel's target cannot do, and where two front ends would get in each other's way.

use std::net::SocketAddr;

use super::Checker;
use crate::config::{Config, Frontend, Target};

impl Checker {
    pub(super) fn frontends(&mut self, config: &Config) {
        let portal = config.targets.values().any(|target| target.frontend == Frontend::Portal);
        for (name, target) in &config.targets {
            let mut problem = |message: &str| self.problem(0, name, message.to_owned());
            match target.frontend {
                Frontend::Portal => {}
                Frontend::Loopback => {
                    if !name.starts_with("naa.") {
                        problem("with frontend: loopback a target's name is naa. and 16 hexadecimal digits");
                    }
                    if !target.initiators.is_empty() {
                        problem("with frontend: loopback this machine is the only initiator; say open: true");
                    }
                }
                Frontend::Lio => lio(&mut problem, config, target, portal),
            }
            if target.frontend != Frontend::Portal {
                if target.redirect.is_some() || config.redirect.is_some() {
                    problem("the kernel's target cannot redirect logins; frontend: portal can");
                }
                if target.luns.keys().any(|lun| *lun > 255) {
                    problem("the kernel's target takes LUNs 0 to 255");
                }
            }
        }
    }
}

fn lio(problem: &mut impl FnMut(&str), config: &Config, target: &Target, portal: bool) {
    let logins = target.initiators.values().map(|initiator| &initiator.login);
    let with_chap = logins.clone().filter(|login| login.chap.is_some()).count();
    if with_chap > 0 && (with_chap < target.initiators.len() || target.open) {
        problem(
            "with frontend: lio either every initiator of a target has chap or none, and none where it is open",
        );
    }
    if config.discovery.chap.is_some() {
        problem(
            "the kernel's discovery login is the whole machine's; discovery.chap is for frontend: portal only",
        );
    }
    for chap in logins.flat_map(|login| [&login.chap, &login.mutual]).flatten() {
        let is_odd = |text: &[u8]| {
            text.starts_with(b"NULL") || !text.iter().all(|byte| *byte == b' ' || byte.is_ascii_graphic())
        };
        if is_odd(chap.user.as_bytes()) || is_odd(chap.secret.expose()) {
            problem("the kernel's CHAP names and secrets are printable ASCII and do not begin with NULL");
        }
    }
    let clashes = |address: &SocketAddr| {
        config.listen.iter().any(|ours| {
            ours.port() == address.port()
                && (ours.ip() == address.ip() || ours.ip().is_unspecified() || address.ip().is_unspecified())
        })
    };
    if portal && (target.addresses.is_empty() || target.addresses.iter().any(clashes)) {
        problem(
            "frontend: portal listens on `listen`; beside it a target of frontend: lio needs `addresses` of its own",
        );
    }
}
