//! `rbdgate demo`: one disk on loopback, no configuration.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use super::say;
use crate::config::{Admin, Bytes, Config, Disk, Frontend, Limits, Login, Parameters, Rbd, Store, Target};
use crate::{control, supervisor};

const TARGET: &str = "iqn.2026-01.io.rbdgate:demo";

#[derive(Debug, Args)]
pub(super) struct Demo {
    /// Folder of the disk's file [default: rbdgate in the user's data folder]
    #[arg(long, value_name = "DIR", conflicts_with = "ceph")]
    dir: Option<PathBuf>,
    /// Size of the disk, when it is made now (10GiB); the space is taken only as data is written
    #[arg(long, value_name = "SIZE")]
    size: Option<Bytes>,
    /// Physical block of the disk: 4096 (512e), or 512 (512n)
    #[arg(long, value_name = "BYTES", default_value = "4096", value_parser = physical_block_size)]
    physical_block_size: u32,
    /// Address to serve on
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:3260")]
    listen: SocketAddr,
    /// Serve an RBD image instead of a file: Ceph's configuration file, then the image as POOL/IMAGE
    #[arg(long, num_args = 2, value_names = ["CONF", "POOL/IMAGE"])]
    ceph: Option<Vec<String>>,
    /// cephx user for --ceph, without "client."
    #[arg(long, value_name = "USER", default_value = "admin", requires = "ceph")]
    client: String,
    /// Make the image of --ceph when it is missing
    #[arg(long, requires = "ceph")]
    create: bool,
}

impl Demo {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let store = self.store()?;
        let what = store.to_string();
        let asked = self.listen;
        let exposed = !asked.ip().is_loopback();
        let config = self.config(store);
        supervisor::run(config, None, move |addresses| {
            let listen = addresses.first().copied().unwrap_or(asked);
            let url = format!("iscsi://{listen}/{TARGET}/0");
            say(&format!("serving {what}\n\n  {url}\n\ntry, in another terminal:\n"));
            say(&format!(
                "  iscsi-ls -s iscsi://{listen}\n  qemu-img info {url}\n\nCtrl-C ends it; the data stays."
            ));
            if exposed {
                say(
                    "note: whoever reaches this address may read and write the disk; for more than a try use \"rbdgate serve\".",
                );
            }
        })
    }

    fn store(&self) -> anyhow::Result<Store> {
        let size = self.size.map_or(10 << 30, |size| size.0);
        if size < 4096 || !size.is_multiple_of(4096) {
            bail!(
                "--size {} is not accepted: a multiple of 4096 bytes, such as 512MiB or 10GiB",
                Bytes(size)
            );
        }
        let Some([conf, image]) = self.ceph.as_deref() else {
            let dir = match &self.dir {
                Some(dir) => dir.clone(),
                None => {
                    data_folder().context("no home folder is known; say where with --dir")?.join("rbdgate")
                }
            };
            std::fs::create_dir_all(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
            let path = dir.join("demo.img");
            // An existing disk keeps its size unless another one is asked for.
            let size = (self.size.is_some() || !path.exists()).then_some(size);
            return Ok(Store::File { path, size });
        };
        let parts: Vec<&str> = image.split('/').collect();
        let (pool, namespace, image) = match parts[..] {
            [pool, image] => (pool, None, image),
            [pool, namespace, image] => (pool, Some(namespace.to_owned()), image),
            _ => bail!("--ceph takes the image as POOL/IMAGE or POOL/NAMESPACE/IMAGE, not \"{image}\""),
        };
        Ok(Store::Rbd(Rbd {
            pool: pool.into(),
            image: image.into(),
            namespace,
            conf: conf.into(),
            client: self.client.clone(),
            keyring: None,
            create: self.create.then_some(size),
        }))
    }

    fn config(&self, store: Store) -> Config {
        // Beside the disk's file; nothing is left on this machine for an image.
        let state = match &store {
            Store::File { path, .. } => path.parent().map(|folder| folder.join("state")),
            _ => None,
        };
        let disk = Disk {
            store,
            read_only: false,
            block_size: 512,
            physical_block_size: self.physical_block_size,
            pool_threshold: None,
            serial: None,
            vendor: None,
            product: None,
            removable: false,
            fault: None,
        };
        let target = Target {
            frontend: Frontend::Portal,
            portal_group: 1,
            addresses: Vec::new(),
            luns: BTreeMap::from([(0, "demo".into())]),
            open: true,
            redirect: None,
            initiators: BTreeMap::new(),
            parameters: Parameters::default(),
        };
        Config {
            redirect: None,
            listen: vec![self.listen],
            admin: Admin { listen: None, control: control::demo_socket() },
            discovery: Login::default(),
            limits: Limits { shutdown_grace: Duration::from_secs(3), ..Limits::default() },
            state,
            reactors: 0,
            gather: true,
            disks: BTreeMap::from([("demo".into(), disk)]),
            targets: BTreeMap::from([(TARGET.into(), target)]),
        }
    }
}

fn data_folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| Path::new(&home).join(".local/share")))
}

fn physical_block_size(text: &str) -> Result<u32, String> {
    match text {
        "512" => Ok(512),
        "4096" => Ok(4096),
        _ => Err("512 or 4096".into()),
    }
}
