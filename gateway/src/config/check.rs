//! Raw file → checked types: every rule that the shape alone does not carry.

mod frontend;
mod limits;

use std::collections::BTreeMap;
use std::fmt::Display;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use serde_yaml::Spanned;

use super::quantity::Bytes;
use super::{
    Admin, Chap, Config, Disk, Fault, Frontend, Initiator, Login, Problem, Rbd, Redirect, Store, Target, raw,
};
use crate::names;
use crate::secret::Secret;

/// Where `rbdgate status` finds a running gateway when the file does not say.
pub const CONTROL: &str = "/run/rbdgate/control.sock";

/// Where state is kept when the file does not say.
pub const STATE: &str = "/var/lib/rbdgate";

pub(super) fn check(file: raw::File, folder: &Path) -> Result<Config, Vec<Problem>> {
    let mut checker = Checker {
        problems: Vec::new(),
        folder: folder.into(),
        serials: BTreeMap::new(),
        frontend: file.frontend.unwrap_or_default(),
    };
    let config = checker.config(file);
    if checker.problems.is_empty() { Ok(config) } else { Err(checker.problems) }
}

struct Checker {
    problems: Vec<Problem>,
    folder: PathBuf,
    /// Disks by what hosts know them by.
    serials: BTreeMap<String, String>,
    /// Of targets that do not say it themselves.
    frontend: Frontend,
}

impl Checker {
    fn config(&mut self, file: raw::File) -> Config {
        let limits = self.limits(file.limits.unwrap_or_default());
        let disks: BTreeMap<_, _> =
            file.disks.into_iter().map(|(name, disk)| self.disk(name, disk)).collect();
        let mut targets = BTreeMap::new();
        for (index, target) in file.targets.into_iter().enumerate() {
            let (line, at) = (line(&target), format!("targets[{index}]"));
            let (name, target) = self.target(&at, target.value, &disks);
            if targets.insert(name.clone(), target).is_some() {
                self.problem(
                    line,
                    &format!("{at}.name"),
                    format!("{name} is there twice; name each target once"),
                );
            }
        }
        self.uses(&targets);
        let discovery = file.discovery.map_or_else(Login::default, |discovery| {
            self.login("discovery", discovery.chap, discovery.mutual_chap)
        });
        let config = Config {
            listen: self.listen(file.listen),
            admin: self.admin(file.admin),
            discovery,
            redirect: file.redirect.and_then(|redirect| self.redirect("redirect", &redirect)),
            limits,
            state: Some(self.folder.join(file.state.unwrap_or_else(|| STATE.into()))),
            reactors: file.reactors.map_or(0, |count| self.range("reactors", &count, 1..=256)),
            gather: file.gather.unwrap_or(true),
            disks,
            targets,
        };
        self.frontends(&config);
        config
    }

    fn listen(&mut self, listen: Option<Spanned<Vec<Spanned<String>>>>) -> Vec<std::net::SocketAddr> {
        let Some(listen) = listen else {
            return vec![([0, 0, 0, 0], 3260).into()];
        };
        if listen.value.is_empty() {
            self.problem(line(&listen), "listen", "name at least one address".into());
        }
        listen.value.iter().filter_map(|text| self.address("listen", text)).collect()
    }

    fn address(&mut self, field: &str, text: &Spanned<String>) -> Option<std::net::SocketAddr> {
        raw::address(&text.value).map_err(|message| self.problem(line(text), field, message)).ok()
    }

    fn redirect(&mut self, at: &str, redirect: &raw::Redirect) -> Option<Redirect> {
        let field = format!("{at}.address");
        let address = self.address(&field, &redirect.address)?;
        if !raw::is_reachable(address) {
            let message = format!("\"{}\" is no address that an initiator can reach", redirect.address.value);
            self.problem(line(&redirect.address), &field, message);
        }
        Some(Redirect { address, permanent: redirect.permanent.unwrap_or(false) })
    }

    fn admin(&self, admin: Option<raw::Admin>) -> Admin {
        let (listen, control) = admin.map_or((None, None), |admin| (admin.listen, admin.control));
        Admin { listen, control: control.map_or_else(|| CONTROL.into(), |path| self.folder.join(path)) }
    }

    fn disk(&mut self, name: String, disk: Spanned<raw::Disk>) -> (String, Disk) {
        let (place, at, disk) = (line(&disk), format!("disks.{name}"), disk.value);
        let stores = usize::from(disk.rbd.is_some())
            + usize::from(disk.file.is_some())
            + usize::from(disk.memory.is_some());
        if stores != 1 {
            self.problem(place, &at, format!("has {stores} stores; give exactly one of rbd, file, memory"));
        }
        let store = match (disk.rbd, disk.file, disk.memory) {
            (Some(rbd), ..) => Store::Rbd(self.rbd(&format!("{at}.rbd"), rbd)),
            (_, Some(file), _) => Store::File {
                path: self.folder.join(file.path),
                size: file.size.map(|size| self.disk_size(&format!("{at}.file.size"), &size)),
            },
            (_, _, Some(memory)) => {
                Store::Memory { size: self.disk_size(&format!("{at}.memory.size"), &memory.size) }
            }
            (None, None, None) => Store::Memory { size: 0 },
        };
        let (block_size, physical_block_size) =
            self.blocks(&at, disk.block_size.as_ref(), disk.physical_block_size.as_ref());
        let pool_threshold = disk.pool_threshold.map(|percent| {
            if !(1..=99).contains(&percent.value) {
                let field = format!("{at}.pool_threshold");
                self.problem(
                    line(&percent),
                    &field,
                    format!("{} is no percentage from 1 to 99", percent.value),
                );
            }
            percent.value
        });
        let disk = Disk {
            store,
            read_only: disk.read_only.unwrap_or(false),
            block_size,
            physical_block_size,
            pool_threshold,
            serial: disk.serial.map(|serial| self.serial(&at, &name, serial)),
            vendor: disk.vendor.map(|vendor| self.ascii(&format!("{at}.vendor"), vendor, 8)),
            product: disk.product.map(|product| self.ascii(&format!("{at}.product"), product, 16)),
            removable: disk.removable.unwrap_or(false),
            fault: disk.fault.map(|fault| Fault {
                latency: fault.latency.map_or_else(Default::default, |time| time.0),
                bandwidth: fault
                    .bandwidth
                    .map(|rate| self.size(&format!("{at}.fault.bandwidth"), &rate, 1..=(1 << 50))),
            }),
        };
        (name, disk)
    }

    /// Logical and physical block, bytes.
    /// Hosts tell disks apart by the NAA name, which is made of the serial's first 25 hexadecimal digits where it has as
    /// many, and else of the whole: two disks of one name would be taken for two paths to one.
    fn serial(&mut self, at: &str, disk: &str, serial: Spanned<String>) -> String {
        let digits: String = serial.value.chars().filter(char::is_ascii_hexdigit).take(25).collect();
        let (named, what) = if digits.len() == 25 {
            (
                digits.to_ascii_lowercase(),
                "its first 25 hexadecimal digits, by which hosts know the disk, are",
            )
        } else {
            (serial.value.clone(), "by it hosts know the disk, and its characters are")
        };
        match self.serials.get(&named) {
            Some(other) => {
                let says = format!("{what} those of the disk \"{other}\" too; every disk needs its own");
                self.problem(line(&serial), &format!("{at}.serial"), says);
            }
            None => drop(self.serials.insert(named, disk.to_owned())),
        }
        self.ascii(&format!("{at}.serial"), serial, 36)
    }

    fn blocks(
        &mut self,
        at: &str,
        logical: Option<&Spanned<u32>>,
        physical: Option<&Spanned<u32>>,
    ) -> (u32, u32) {
        let mut possible = |field: &str, size: Option<&Spanned<u32>>, default: u32| {
            let Some(size) = size else { return default };
            if !matches!(size.value, 512 | 4096) {
                let says = format!("{} is not accepted; 512 or 4096", size.value);
                self.problem(line(size), &format!("{at}.{field}"), says);
            }
            size.value
        };
        let block = possible("block_size", logical, 512);
        let physical_block = possible("physical_block_size", physical, 4096);
        if let Some(physical) = physical
            && physical_block < block
        {
            let says = format!("{physical_block} is below block_size, which is {block}");
            self.problem(line(physical), &format!("{at}.physical_block_size"), says);
        }
        (block, physical_block)
    }

    fn rbd(&mut self, at: &str, rbd: raw::Rbd) -> Rbd {
        let mut word = |field: &str, text: Spanned<String>| {
            if text.value.is_empty()
                || text.value.contains(['/', '@'])
                || text.value.chars().any(char::is_control)
            {
                let field = format!("{at}.{field}");
                self.problem(
                    line(&text),
                    &field,
                    format!("\"{}\" is no name; it has no / and no @ and is not empty", text.value),
                );
            }
            text.value
        };
        let (pool, image) = (word("pool", rbd.pool), word("image", rbd.image));
        let namespace = rbd.namespace.map(|namespace| word("namespace", namespace));
        let client = rbd.client.map_or_else(|| "admin".into(), |client| word("client", client));
        Rbd {
            pool,
            image,
            namespace,
            conf: rbd.conf.map_or_else(|| "/etc/ceph/ceph.conf".into(), |path| self.folder.join(path)),
            client: client.strip_prefix("client.").map_or_else(|| client.clone(), str::to_owned),
            keyring: rbd.keyring.map(|path| self.folder.join(path)),
            create: rbd.create.map(|size| self.disk_size(&format!("{at}.create"), &size)),
        }
    }

    fn target(&mut self, at: &str, target: raw::Target, disks: &BTreeMap<String, Disk>) -> (String, Target) {
        let name = self.iscsi_name(&format!("{at}.name"), &target.name);
        for (lun, disk) in &target.luns {
            let field = format!("{at}.luns.{lun}");
            if !disks.contains_key(&disk.value) {
                let known = disks.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
                self.problem(
                    line(disk),
                    &field,
                    format!("there is no disk \"{}\"; the file has: {known}", disk.value),
                );
            }
            if *lun > 16_383 {
                self.problem(line(disk), &field, "LUN numbers go from 0 to 16383".into());
            }
        }
        if target.luns.is_empty() {
            self.problem(
                line(&target.name),
                &format!("{at}.luns"),
                "name at least one LUN, as NUMBER: DISK".into(),
            );
        }
        let luns: BTreeMap<_, _> = target.luns.into_iter().map(|(lun, disk)| (lun, disk.value)).collect();
        let mut initiators = BTreeMap::new();
        for (index, initiator) in target.initiators.into_iter().enumerate() {
            let at = format!("{at}.initiators[{index}]");
            let (place, initiator) = (line(&initiator), initiator.value);
            let name = self.iscsi_name(&format!("{at}.name"), &initiator.name);
            let rights = self.initiator(&at, initiator, &luns);
            if initiators.insert(name.clone(), rights).is_some() {
                self.problem(
                    place,
                    &format!("{at}.name"),
                    format!("{name} is there twice; name each initiator once"),
                );
            }
        }
        let open = target.open.unwrap_or(false);
        if !open && initiators.is_empty() {
            let message = "nobody may log in; list initiators, or say open: true to let everybody in";
            self.problem(line(&target.name), at, message.into());
        }
        let group = target
            .portal_group
            .map_or(1, |group| self.range(&format!("{at}.portal_group"), &group, 1..=65_535));
        let addresses = target.addresses.unwrap_or_default();
        let addresses =
            addresses.iter().filter_map(|text| self.address(&format!("{at}.addresses"), text)).collect();
        let redirect =
            target.redirect.and_then(|redirect| self.redirect(&format!("{at}.redirect"), &redirect));
        let parameters = self.parameters(&format!("{at}.parameters"), target.parameters.unwrap_or_default());
        let frontend = target.frontend.unwrap_or(self.frontend);
        let target =
            Target { frontend, portal_group: group, addresses, luns, open, initiators, redirect, parameters };
        (name, target)
    }

    fn initiator(&mut self, at: &str, raw: raw::Initiator, luns: &BTreeMap<u16, String>) -> Initiator {
        let mut known = |field: &str, list: Vec<Spanned<u16>>| -> Vec<u16> {
            for lun in list.iter().filter(|lun| !luns.contains_key(&lun.value)) {
                let field = format!("{at}.{field}");
                self.problem(line(lun), &field, format!("the target has no LUN {}", lun.value));
            }
            list.into_iter().map(|lun| lun.value).collect()
        };
        let seen = raw.luns.map(|list| known("luns", list));
        let read_only = known("read_only", raw.read_only);
        Initiator { login: self.login(at, raw.chap, raw.mutual_chap), luns: seen, read_only }
    }

    fn login(
        &mut self,
        at: &str,
        chap: Option<Spanned<raw::Chap>>,
        mutual: Option<Spanned<raw::Chap>>,
    ) -> Login {
        if let (None, Some(mutual)) = (&chap, &mutual) {
            let field = format!("{at}.mutual_chap");
            self.problem(
                line(mutual),
                &field,
                "needs chap beside it: an initiator authenticates first".into(),
            );
        }
        let place = mutual.as_ref().map_or(0, line);
        let chap = chap.and_then(|chap| self.chap(&format!("{at}.chap"), chap));
        let mutual = mutual.and_then(|mutual| self.chap(&format!("{at}.mutual_chap"), mutual));
        if let (Some(chap), Some(mutual)) = (&chap, &mutual)
            && chap.secret == mutual.secret
        {
            let message = "the two secrets must differ (RFC 7143 section 12.1.3)";
            self.problem(place, &format!("{at}.mutual_chap"), message.into());
        }
        Login { chap, mutual }
    }

    fn chap(&mut self, at: &str, chap: Spanned<raw::Chap>) -> Option<Chap> {
        let (place, chap) = (line(&chap), chap.value);
        let secret = match (chap.secret, chap.secret_file) {
            (Some(secret), None) => Secret::new(secret.value),
            (None, Some(path)) => self.secret_file(&format!("{at}.secret_file"), path)?,
            _ => {
                self.problem(place, at, "give exactly one of secret, secret_file".into());
                return None;
            }
        };
        // RFC 7143 section 12.1.3 asks for 96 bits; Windows' initiator takes 12 to 16 characters only.
        if !(12..=255).contains(&secret.expose().len()) {
            self.problem(place, at, "a CHAP secret has 12 to 255 bytes (Windows takes 12 to 16)".into());
        }
        if chap.user.value.is_empty() || chap.user.value.len() > 255 {
            self.problem(line(&chap.user), &format!("{at}.user"), "a CHAP name has 1 to 255 bytes".into());
        }
        Some(Chap { user: chap.user.value, secret })
    }

    fn secret_file(&mut self, field: &str, path: Spanned<PathBuf>) -> Option<Secret> {
        let file = self.folder.join(&path.value);
        match std::fs::read(&file) {
            Ok(mut bytes) => {
                bytes.truncate(bytes.trim_ascii_end().len());
                Some(Secret::new(bytes))
            }
            Err(error) => {
                self.problem(line(&path), field, format!("cannot read {}: {error}", file.display()));
                None
            }
        }
    }

    /// A store has one LUN's ring in front of it: two names for one store would be two write paths that do not know
    /// of each other.
    fn uses(&mut self, targets: &BTreeMap<String, Target>) {
        let mut seen = BTreeMap::new();
        for (name, target) in targets {
            for (lun, disk) in &target.luns {
                if let Some((other, number)) = seen.insert(disk.clone(), (name.clone(), *lun)) {
                    let message =
                        format!("disk \"{disk}\" is LUN {number} of {other} already; serve a disk once");
                    self.problem(0, &format!("{name}, LUN {lun}"), message);
                }
            }
        }
    }

    fn iscsi_name(&mut self, field: &str, name: &Spanned<String>) -> String {
        names::normalize(&name.value).unwrap_or_else(|error| {
            self.problem(line(name), field, format!("\"{}\" {error}", name.value));
            name.value.clone()
        })
    }

    fn ascii(&mut self, field: &str, text: Spanned<String>, longest: usize) -> String {
        if text.value.is_empty()
            || text.value.len() > longest
            || !text.value.chars().all(|c| c == ' ' || c.is_ascii_graphic())
        {
            self.problem(line(&text), field, format!("takes 1 to {longest} printable ASCII characters"));
        }
        text.value
    }

    fn disk_size(&mut self, field: &str, size: &Spanned<Bytes>) -> u64 {
        let accepted = 4096..=(1 << 60);
        let bytes = self.size(field, size, accepted.clone());
        if accepted.contains(&bytes) && !bytes.is_multiple_of(4096) {
            self.problem(line(size), field, format!("{bytes} is no multiple of 4096 bytes"));
        }
        bytes
    }

    fn size_or(
        &mut self,
        field: &str,
        size: Option<Spanned<Bytes>>,
        accepted: RangeInclusive<u64>,
        otherwise: u64,
    ) -> u64 {
        size.map_or(otherwise, |size| self.size(field, &size, accepted))
    }

    fn size(&mut self, field: &str, size: &Spanned<Bytes>, accepted: RangeInclusive<u64>) -> u64 {
        if !accepted.contains(&size.value.0) {
            let (low, high) = (Bytes(*accepted.start()), Bytes(*accepted.end()));
            self.problem(line(size), field, format!("{} is not accepted; {low} to {high}", size.value));
        }
        size.value.0
    }

    fn range<T: PartialOrd + Display + Copy>(
        &mut self,
        field: &str,
        value: &Spanned<T>,
        accepted: RangeInclusive<T>,
    ) -> T {
        if !accepted.contains(&value.value) {
            let message =
                format!("{} is not accepted; {} to {}", value.value, accepted.start(), accepted.end());
            self.problem(line(value), field, message);
        }
        value.value
    }

    fn problem(&mut self, line: u64, field: &str, message: String) {
        self.problems.push(Problem { line, field: field.into(), message });
    }
}

fn line<T>(value: &Spanned<T>) -> u64 {
    value.referenced.line()
}
