//! Login redirections: those of the configuration, and those set at run time, which count until they are cleared or the
//! gateway restarts, whatever the file says.

use std::collections::BTreeMap;

use anyhow::bail;

use crate::config::{self, Config};
use crate::portal::{Directory, Redirect};
use crate::{control, names};

/// Redirections set at run time, by target; `None` stands for the whole gateway. A value of `None` undoes the file's.
#[derive(Debug, Default)]
pub(super) struct Redirects {
    set: BTreeMap<Option<String>, Option<Redirect>>,
}

impl Redirects {
    /// Sets or clears one. Answers with what was done.
    pub(super) fn set(&mut self, config: &Config, wanted: &control::Redirect) -> anyhow::Result<String> {
        let target = match &wanted.target {
            None => None,
            Some(name) => {
                let known = names::normalize(name).ok().filter(|name| config.targets.contains_key(name));
                let Some(known) = known else {
                    bail!("there is no target {name}; rbdgate status lists them")
                };
                Some(known)
            }
        };
        let redirect = wanted.address.map(|address| Redirect { address, permanent: wanted.permanent });
        if redirect.is_some_and(|to| !config::is_reachable(to.address)) {
            bail!("an initiator cannot reach a wildcard address or port 0");
        }
        let what = target.clone().unwrap_or_else(|| "every target".into());
        if redirect.is_some() || self.of_file(config, target.as_deref()).is_some() {
            self.set.insert(target, redirect);
        } else {
            self.set.remove(&target);
        }
        Ok(match redirect {
            Some(to) => format!("logins to {what} are sent to {}", to.address),
            None => format!("logins to {what} are taken here"),
        })
    }

    fn of_file(&self, config: &Config, target: Option<&str>) -> Option<Redirect> {
        let redirect = match target {
            None => config.redirect,
            Some(name) => config.targets.get(name).and_then(|target| target.redirect),
        };
        redirect.map(|config::Redirect { address, permanent }| Redirect { address, permanent })
    }

    fn of(&self, config: &Config, target: Option<&str>) -> Option<Redirect> {
        match self.set.get(&target.map(str::to_owned)) {
            Some(set) => *set,
            None => self.of_file(config, target),
        }
    }

    /// Puts the redirections into a directory.
    pub(super) fn apply(&self, config: &Config, mut directory: Directory) -> Directory {
        directory.elsewhere = self.of(config, None);
        let redirected = |name: &String| Some((name.clone(), self.of(config, Some(name))?));
        directory.redirects = config.targets.keys().filter_map(redirected).collect();
        directory
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const FILE: &str = "
disks: { a: { memory: { size: 1MiB } }, b: { memory: { size: 1MiB } } }
redirect: { address: 192.0.2.1 }
targets:
  - { name: iqn.2026-01.com.example:a, luns: { 0: a }, open: true }
  - { name: iqn.2026-01.com.example:b, luns: { 0: b }, open: true, redirect: { address: \"[2001:db8::1]:860\", permanent: true } }
";

    fn wanted(target: Option<&str>, address: Option<&str>) -> control::Redirect {
        control::Redirect {
            target: target.map(str::to_owned),
            address: address.map(|address| address.parse().unwrap()),
            permanent: false,
            log_out: false,
        }
    }

    #[test]
    fn what_was_set_at_run_time_counts_before_the_file_and_a_target_before_the_gateway() {
        let config = Config::parse(FILE, Path::new(".")).unwrap();
        let mut redirects = Redirects::default();
        let at = |redirects: &Redirects, name: &str| {
            redirects
                .apply(&config, Directory::default())
                .redirect(name)
                .map(|to| (to.address.to_string(), to.permanent))
        };
        let (a, b) = ("iqn.2026-01.com.example:a", "iqn.2026-01.com.example:b");
        assert_eq!(at(&redirects, a), Some(("192.0.2.1:3260".into(), false)));
        assert_eq!(at(&redirects, b), Some(("[2001:db8::1]:860".into(), true)));
        redirects.set(&config, &wanted(Some("IQN.2026-01.com.example:A"), Some("192.0.2.2:3260"))).unwrap();
        assert_eq!(at(&redirects, a), Some(("192.0.2.2:3260".into(), false)));
        redirects.set(&config, &wanted(Some(a), None)).unwrap();
        assert_eq!(at(&redirects, a), Some(("192.0.2.1:3260".into(), false)));
        redirects.set(&config, &wanted(None, None)).unwrap();
        redirects.set(&config, &wanted(Some(b), None)).unwrap();
        assert_eq!((at(&redirects, a), at(&redirects, b)), (None, None));
        assert!(redirects.set(&config, &wanted(Some("iqn.2026-01.com.example:c"), None)).is_err());
        assert!(redirects.set(&config, &wanted(None, Some("0.0.0.0:3260"))).is_err());
    }
}
