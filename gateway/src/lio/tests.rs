//! The planner and the executor against the simulated kernel.

use std::time::Duration;

use proptest::prelude::*;

use super::simulated::{Node, Simulated};
use super::wanted::{Acl, Area, Backstore, Fabric, Lun, Target, Wanted};
use super::*;
use crate::secret::Secret;

const IQN: &str = "iqn.2026-01.com.example:store";
const HOST: &str = "iqn.1994-05.com.redhat:host1";

fn backstore(disk: &str) -> Backstore {
    Backstore {
        config: names::config_of(&format!("file:/disks/{disk}")),
        size: 1 << 30,
        block_size: 512,
        max_sectors: 16384,
        area: Area { data_mib: 128, pages_per_block: 1, ring_mib: 8 },
        serial: format!("serial-of-{disk}"),
        command_timeout: sizing::COMMAND_TIMEOUT,
        full_timeout: Duration::from_secs(30),
        reservations: true,
        replies: false,
        group: 1,
    }
}

fn wanted(luns: &[u16]) -> Wanted {
    let name = |lun: &u16| names::backstore_of(&format!("disk{lun}"));
    let backstores = luns.iter().map(|lun| (name(lun), Some(backstore(&name(lun))))).collect();
    let chap = |user: &str| Some((user.to_owned(), Secret::new(format!("secret-of-{user}"))));
    let view = luns.iter().map(|lun| (*lun, lun % 2 == 1)).collect();
    let acl = Acl { luns: view, chap: chap("host1"), mutual: None };
    let target = Target {
        fabric: Fabric::Iscsi,
        tag: 1,
        portals: vec![([127, 0, 0, 1], 3260).into()],
        luns: luns.iter().map(|lun| (*lun, Lun { backstore: name(lun), served: true })).collect(),
        open: false,
        acls: [(HOST.to_owned(), acl)].into(),
        chap: true,
        settings: [("param/MaxBurstLength", "1048576".to_owned())].into(),
        acl_settings: [("attrib/nopin_timeout", "5".to_owned())].into(),
    };
    Wanted { backstores, targets: [(IQN.to_owned(), target)].into() }
}

fn reconcile(kernel: &Simulated, wanted: &Wanted) -> Outcome {
    let tree = Tree::observe(kernel, wanted).unwrap();
    apply(kernel, plan::whole(wanted, &tree))
}

fn nothing_left_to_do(kernel: &Simulated, wanted: &Wanted) {
    let plan = plan::whole(wanted, &Tree::observe(kernel, wanted).unwrap());
    assert_eq!(plan.steps, [], "a second plan after a good one is empty");
}

/// Objects of other owners: a device in an HBA of its own, one in ours, a target with the first of them.
fn with_foreigners() -> Simulated {
    let kernel = Simulated::new();
    let (own, in_ours, target) = ("core/user_0/a", "core/user_3720/foreign", "iscsi/iqn.2003-01.org.other:t");
    for path in ["core/user_0", own, "core/user_3720", in_ours, target] {
        kernel.make_folder(path).unwrap();
    }
    for (device, config) in [(own, "rbd/pool/image"), (in_ours, "other/thing")] {
        kernel.write(&format!("{device}/control"), &format!("dev_config={config},dev_size=4096")).unwrap();
        kernel.write(&format!("{device}/enable"), "1").unwrap();
    }
    kernel.make_folder(&format!("{target}/tpgt_1")).unwrap();
    kernel.make_folder(&format!("{target}/tpgt_1/lun/lun_0")).unwrap();
    kernel.link(&format!("{target}/tpgt_1/lun/lun_0/x"), own).unwrap();
    kernel
}

fn foreigners(kernel: &Simulated) -> Vec<std::collections::BTreeMap<String, Node>> {
    ["core/user_0", "core/user_3720/foreign", "iscsi/iqn.2003-01"].map(|path| kernel.below(path)).into()
}

#[test]
fn from_nothing_to_a_target_that_listens() {
    let kernel = Simulated::new();
    let wanted = wanted(&[0, 1]);
    let outcome = reconcile(&kernel, &wanted);
    assert_eq!(outcome.failures, [].into());
    nothing_left_to_do(&kernel, &wanted);
    let group = format!("iscsi/{IQN}/tpgt_1");
    assert_eq!(kernel.read(&format!("{group}/enable")).unwrap(), "1\n");
    assert_eq!(kernel.read(&format!("{group}/acls/{HOST}/lun_1/write_protect")).unwrap(), "1\n");
    assert_eq!(kernel.read(&format!("{group}/acls/{HOST}/auth/userid")).unwrap(), "host1\n");
    let timeout = names::backstore("disk0") + "/attrib/cmd_time_out";
    assert_eq!(kernel.read(&timeout).unwrap(), "300\n");
}

#[test]
fn nothing_of_ours_is_left_when_nothing_is_wanted() {
    let kernel = with_foreigners();
    let before = foreigners(&kernel);
    assert!(reconcile(&kernel, &wanted(&[0, 1, 2])).is_clean());
    assert!(reconcile(&kernel, &Wanted::default()).is_clean());
    assert_eq!(kernel.below(&format!("iscsi/{IQN}")), [].into());
    assert_eq!(kernel.below("core/user_3720/disk"), [].into());
    assert_eq!(foreigners(&kernel), before);
}

#[test]
fn a_disk_that_is_another_one_now_is_made_anew_and_a_size_is_only_told() {
    let kernel = Simulated::new();
    let mut wanted = wanted(&[0]);
    assert!(reconcile(&kernel, &wanted).is_clean());
    let disk = wanted.backstores.get_mut("disk0").unwrap().as_mut().unwrap();
    disk.size *= 2;
    disk.area.data_mib = 256;
    let plan = plan::whole(&wanted, &Tree::observe(&kernel, &wanted).unwrap());
    assert_eq!(plan.steps.len(), 1, "{plan:?}");
    assert_eq!(plan.notes.len(), 1, "{plan:?}");
    wanted.backstores.get_mut("disk0").unwrap().as_mut().unwrap().serial = "another".into();
    assert!(reconcile(&kernel, &wanted).is_clean());
    nothing_left_to_do(&kernel, &wanted);
    let serial = kernel.read(&(names::backstore("disk0") + "/wwn/vpd_unit_serial")).unwrap();
    assert!(serial.ends_with("another\n"), "{serial}");
}

#[test]
fn what_another_owner_has_is_a_problem_of_that_lun_alone() {
    let kernel = with_foreigners();
    let before = foreigners(&kernel);
    let mut wanted = wanted(&[0]);
    wanted.backstores.insert("foreign".into(), Some(backstore("foreign")));
    let target = wanted.targets.get_mut(IQN).unwrap();
    target.luns.insert(7, Lun { backstore: "foreign".into(), served: true });
    let outcome = reconcile(&kernel, &wanted);
    let failed: Vec<_> = outcome.failures.keys().collect();
    assert_eq!(failed, [&Subject::Backstore("foreign".into()), &Subject::Lun(IQN.into(), 7)]);
    assert_eq!(foreigners(&kernel), before);
    assert_eq!(kernel.read(&format!("iscsi/{IQN}/tpgt_1/enable")).unwrap(), "1\n");
}

#[test]
fn a_lun_whose_disk_is_not_open_stays_as_the_kernel_has_it() {
    let kernel = Simulated::new();
    let mut wanted = wanted(&[0, 1]);
    assert!(reconcile(&kernel, &wanted).is_clean());
    let before = kernel.below("");
    wanted.backstores.insert("disk0".into(), None);
    wanted.targets.get_mut(IQN).unwrap().luns.get_mut(&0).unwrap().served = false;
    assert!(reconcile(&kernel, &wanted).is_clean());
    assert_eq!(kernel.below(""), before);
}

#[test]
fn secrets_are_not_shown() {
    let plan = plan::whole(&wanted(&[0]), &Tree::default());
    assert!(!format!("{plan:?}").contains("secret-of-host1"));
}

#[test]
fn an_event_lock_is_given_back_and_a_missing_module_is_named() {
    let kernel = Simulated::new();
    drop(handshake::Quiet::begin(&kernel).unwrap());
    assert_eq!(kernel.parameter("target_core_user", "block_netlink").unwrap(), "0");
    assert!(handshake::prepare(&kernel, &[Fabric::Iscsi, Fabric::Loopback]).is_ok());
    assert!(handshake::has_foreign_devices(&with_foreigners(), &names::hba()).unwrap());
    assert!(!handshake::has_foreign_devices(&kernel, &names::hba()).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Half-made in whatever way, and in whatever order configurations follow each other.
    #[test]
    fn from_any_half_made_state_the_plan_reaches_what_is_wanted(
        tries in proptest::collection::vec(
            (proptest::collection::btree_set(0u16..4, 0..4), 0usize..80, prop_oneof![Just(1), Just(usize::MAX)]),
            0..5,
        ),
        last in proptest::collection::btree_set(0u16..4, 1..4),
    ) {
        let kernel = with_foreigners();
        let before = foreigners(&kernel);
        for (luns, after, count) in tries {
            kernel.fail(after, count, libc::EIO);
            reconcile(&kernel, &wanted(&luns.into_iter().collect::<Vec<_>>()));
        }
        kernel.mend();
        let wanted = wanted(&last.into_iter().collect::<Vec<_>>());
        let outcome = reconcile(&kernel, &wanted);
        prop_assert_eq!(&outcome.failures, &[].into());
        nothing_left_to_do(&kernel, &wanted);
        prop_assert_eq!(foreigners(&kernel), before);
    }
}
