//! Asymmetric logical unit access: what the groups look like, what each state serves, and who hears of a change.

use std::sync::{Arc, Mutex};

use super::bench::{code, entry, none, out, room_of};
use super::{Bench, Sense, cdb10, sense};
use crate::disk::Error;
use crate::scsi::Continuation;
use crate::scsi::Unit;
use crate::scsi::alua::{Cause, Done, Group, Groups, Refusal, Source, State, States, Wish};
use crate::scsi::opcode;
use crate::scsi::step::{Io, Step, status};

/// What the lane does: hands the wishes to the unit's source.
pub(super) fn set_groups(unit: &Unit, wishes: &[Wish]) -> Result<(), Error> {
    let (tell, told) = std::sync::mpsc::channel();
    unit.source().unwrap().set(wishes, Box::new(move |result| tell.send(result).unwrap()));
    told.recv().unwrap().map_err(|refusal| match refusal {
        Refusal::Transitioning => Error::NotReady,
        Refusal::Failed => Error::Io(5),
    })
}

/// A cluster of two gateways that does what a test tells it. The bench's nexuses come through port 3.
pub(super) struct Cluster {
    groups: Mutex<Arc<Groups>>,
    refuses: Mutex<Option<Refusal>>,
}

const ALL: [State; 6] = [
    State::ActiveOptimized,
    State::ActiveNonOptimized,
    State::Standby,
    State::Unavailable,
    State::Offline,
    State::Transitioning,
];

impl Cluster {
    pub(super) fn new(explicit: bool) -> Arc<Self> {
        let group = |id, state, port| Group {
            id,
            state,
            preferred: id == 7,
            cause: Cause::Implicit,
            supported: States::of(&ALL),
            ports: vec![port],
        };
        let groups = Groups {
            implicit: true,
            explicit,
            transition_seconds: 45,
            groups: vec![group(7, State::ActiveOptimized, 3), group(8, State::ActiveNonOptimized, 4)],
        };
        Arc::new(Self { groups: Mutex::new(Arc::new(groups)), refuses: Mutex::default() })
    }

    pub(in crate::scsi) fn change(&self, change: impl FnOnce(&mut Groups)) {
        let mut groups = self.groups.lock().unwrap();
        change(Arc::make_mut(&mut groups));
    }
}

impl Source for Cluster {
    fn groups(&self) -> Arc<Groups> {
        Arc::clone(&self.groups.lock().unwrap())
    }

    fn on_change(&self, _: Box<dyn Fn() + Send + Sync>) {}

    fn set(&self, wishes: &[Wish], done: Done) {
        if let Some(refusal) = *self.refuses.lock().unwrap() {
            return done(Err(refusal));
        }
        self.change(|groups| {
            for group in &mut groups.groups {
                let wish = wishes.iter().find(|wish| wish.group == group.id);
                (group.state, group.cause) =
                    wish.map_or((group.state, group.cause), |wish| (wish.state, Cause::Explicit));
            }
        });
        done(Ok(()));
    }
}

fn bench(cluster: &Arc<Cluster>) -> Bench {
    let mut bench = Bench::new();
    bench.through(Arc::clone(cluster) as _);
    bench
}

/// Puts the bench's own port into a state, and hears of it.
fn enter(bench: &mut Bench, cluster: &Cluster, state: State) {
    cluster.change(|groups| groups.groups[0].state = state);
    bench.unit.access_changed();
    bench.fails(&[0; 6], sense::ASYMMETRIC_ACCESS_STATE_CHANGED);
}

const REPORT: [u8; 12] = [0xA3, 0x0A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];

fn set(length: u8) -> [u8; 12] {
    [0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, length, 0, 0]
}

#[test]
fn a_gateway_on_its_own_is_one_group_that_is_always_optimized() {
    // SPC-4, REPORT TARGET PORT GROUPS; standard INQUIRY data, TPGS.
    let mut bench = Bench::new();
    assert_eq!(bench.reads(&REPORT, 256), [0, 0, 0, 12, 0, 0x01, 0, 3, 0, 0, 0, 1, 0, 0, 0, 3]);
    let data = bench.reads(&[0x12, 0, 0, 0, 96, 0], 96);
    assert_eq!((data[5] & 0x30, data[6] & 0x10), (0x10, 0), "TPGS; MULTIP");
    bench.fails_with(&set(8), &[0, 0, 0, 0, 0, 0, 0, 3], sense::INVALID_COMMAND_OPERATION_CODE);
}

#[test]
fn report_target_port_groups_lists_every_group_in_both_formats() {
    // SPC-4, REPORT TARGET PORT GROUPS, length only and extended header parameter data formats.
    let mut bench = bench(&Cluster::new(false));
    let groups = [0x80, 0xCF, 0, 7, 0, 2, 0, 1, 0, 0, 0, 3, 0x01, 0xCF, 0, 8, 0, 2, 0, 1, 0, 0, 0, 4];
    let plain = [&[0, 0, 0, 24][..], &groups].concat();
    assert_eq!(bench.reads(&REPORT, 256), plain);
    let mut extended = REPORT;
    extended[1] = 0x2A;
    // IMPLICIT TRANSITION TIME.
    assert_eq!(bench.reads(&extended, 256), [&[0, 0, 0, 28, 0x10, 45, 0, 0][..], &groups].concat());
    extended[1] = 0x4A;
    bench.fails(&extended, sense::INVALID_FIELD_IN_CDB);
    let mut short = REPORT;
    (short[8], short[9]) = (0, 6);
    assert_eq!(bench.reads(&short, 256), plain[..6]);
}

#[test]
fn the_identification_page_tpgs_and_multip_follow_the_groups() {
    // SPC-4, target port group designator; standard INQUIRY data, TPGS, MULTIP: more than one target port.
    let mut bench = bench(&Cluster::new(true));
    let data = bench.reads(&[0x12, 0, 0, 0, 96, 0], 96);
    assert_eq!((data[5] & 0x30, data[6] & 0x10), (0x30, 0x10));
    let page = bench.reads(&[0x12, 1, 0x83, 4, 0, 0], 1024);
    let group = [0x51, 0x95, 0, 4, 0, 0, 0, 7];
    assert!(page.windows(8).any(|window| window == group), "{page:02x?}");
}

/// What each state refuses with, and what it still serves.
#[test]
fn each_state_serves_the_commands_that_its_clause_lists() {
    // SPC-4, standby, unavailable, offline and transitioning target port asymmetric access state.
    let inquiry: &[u8] = &[0x12, 0, 0, 0, 96, 0];
    let always: [&[u8]; 4] = [&[0x03, 0, 0, 0, 18, 0], inquiry, &super::cdb12(0xA0, 0, 64), &REPORT];
    let standby: [&[u8]; 3] =
        [&[0x1A, 0, 0x3F, 0, 255, 0], &[0x15, 0x10, 0, 0, 0, 0], &[0x1D, 4, 0, 0, 0, 0]];
    let active: [&[u8]; 4] =
        [&[0; 6], &cdb10(0x28, 0, 1), &cdb10(0x2A, 0, 1), &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0]];
    for (state, refusal, serves_standby, serves_set) in [
        (State::ActiveNonOptimized, None, true, true),
        (State::Standby, Some(sense::TARGET_PORT_IN_STANDBY_STATE), true, true),
        (State::Unavailable, Some(sense::TARGET_PORT_IN_UNAVAILABLE_STATE), false, true),
        (State::Offline, Some(sense::LOGICAL_UNIT_OFFLINE), false, true),
        (State::Transitioning, Some(sense::ASYMMETRIC_ACCESS_STATE_TRANSITION), false, false),
    ] {
        let cluster = Cluster::new(true);
        let mut bench = bench(&cluster);
        enter(&mut bench, &cluster, state);
        let mut ends = |cdb: &[u8], served: bool| {
            let ended = bench.run(cdb, &mut room_of(512));
            let told = (ended.status == status::CHECK_CONDITION).then(|| code(&ended.sense));
            let refusal = refusal.filter(|_| !served).map(|sense: Sense| sense.code());
            assert_eq!(told, refusal, "{state:?} {cdb:02x?}");
        };
        always.iter().for_each(|cdb| ends(cdb, true));
        standby.iter().for_each(|cdb| ends(cdb, serves_standby));
        ends(&set(0), serves_set);
        active[..2].iter().chain(&active[3..]).for_each(|cdb| ends(cdb, false));
        let written = bench.run(active[2], &mut out(&[1; 512]));
        assert_eq!(
            (written.status == status::GOOD, written.io.len()),
            (refusal.is_none(), usize::from(refusal.is_none()))
        );
        // SPC-4, unavailable state: INQUIRY has the peripheral qualifier 001b.
        let qualifier = if state == State::Unavailable { 0x20 } else { 0 };
        assert_eq!(bench.reads(inquiry, 96)[0], qualifier);
    }
}

#[test]
fn another_port_of_the_same_unit_has_a_state_of_its_own() {
    let cluster = Cluster::new(false);
    let mut bench = bench(&cluster);
    let mut elsewhere = entry("iqn.2026-01.example:elsewhere");
    elsewhere.ports.portal_group = 4;
    let elsewhere = bench.nexuses.enter(elsewhere);
    assert_eq!(
        code(&bench.run_as(elsewhere.nexus(), &[0; 6], &mut none()).sense),
        sense::POWER_ON_OCCURRED.code()
    );
    enter(&mut bench, &cluster, State::Standby);
    bench.fails(&[0; 6], sense::TARGET_PORT_IN_STANDBY_STATE);
    let ended = bench.run_as(elsewhere.nexus(), &[0; 6], &mut none());
    assert_eq!(code(&ended.sense), sense::ASYMMETRIC_ACCESS_STATE_CHANGED.code());
    assert_eq!(bench.run_as(elsewhere.nexus(), &[0; 6], &mut none()).status, status::GOOD);
    // Nor does a sender without a name come through a port of ours.
    bench.run_as(ring::Nexus::UNKNOWN, &[0; 6], &mut none());
    assert_eq!(bench.run_as(ring::Nexus::UNKNOWN, &[0; 6], &mut none()).status, status::GOOD);
}

#[test]
fn an_unasked_change_is_told_to_every_nexus_once() {
    // SPC-4, implicit asymmetric logical units access management: ASYMMETRIC ACCESS STATE CHANGED.
    let cluster = Cluster::new(false);
    let mut bench = bench(&cluster);
    let second = bench.second();
    cluster.change(|groups| groups.groups[1].state = State::Unavailable);
    bench.unit.access_changed();
    bench.unit.access_changed();
    bench.fails(&[0; 6], sense::ASYMMETRIC_ACCESS_STATE_CHANGED);
    bench.passes(&[0; 6]);
    let ended = bench.run_as(second.nexus(), &[0; 6], &mut none());
    assert_eq!(code(&ended.sense), sense::ASYMMETRIC_ACCESS_STATE_CHANGED.code());
    assert_eq!(bench.run_as(second.nexus(), &[0; 6], &mut none()).status, status::GOOD);
    // A flag that no state depends on is not worth an attention.
    cluster.change(|groups| groups.groups[1].preferred = true);
    bench.unit.access_changed();
    bench.passes(&[0; 6]);
}

#[test]
fn other_groups_or_another_kind_of_management_are_other_inquiry_data() {
    // SPC-4, INQUIRY: INQUIRY DATA HAS CHANGED.
    let cluster = Cluster::new(false);
    let mut bench = bench(&cluster);
    cluster.change(|groups| groups.explicit = true);
    bench.unit.access_changed();
    bench.fails(&[0; 6], sense::INQUIRY_DATA_HAS_CHANGED);
    bench.passes(&[0; 6]);
}

#[test]
fn set_target_port_groups_changes_states_and_tells_everybody_else() {
    // SPC-4, SET TARGET PORT GROUPS; explicit asymmetric logical units access management.
    let cluster = Cluster::new(true);
    let mut bench = bench(&cluster);
    let second = bench.second();
    let list = [0, 0, 0, 0, 1, 0, 0, 7, 0, 0, 0, 8];
    assert_eq!(bench.writes(&set(12), &list).io, ["set 2 groups"]);
    bench.passes(&[0; 6]);
    let ended = bench.run_as(second.nexus(), &[0; 6], &mut none());
    assert_eq!(code(&ended.sense), sense::ASYMMETRIC_ACCESS_STATE_CHANGED.code());
    let report = bench.reads(&REPORT, 256);
    // STATUS CODE: altered by SET TARGET PORT GROUPS.
    assert_eq!([report[4] & 0x0F, report[9], report[16] & 0x0F, report[21]], [1, 1, 0, 1]);
    // The next change is news for the one who set this one, too.
    enter(&mut bench, &cluster, State::Standby);
}

#[test]
fn set_target_port_groups_checks_its_list_before_it_does_anything() {
    let cluster = Cluster::new(true);
    let mut bench = bench(&cluster);
    let good = [0, 0, 0, 0, 1, 0, 0, 7];
    assert!(bench.writes(&set(0), &[]).io.is_empty());
    assert!(bench.writes(&set(4), &[0; 4]).io.is_empty());
    for (length, list) in [(3, &good[..3]), (6, &good[..6]), (12, &good[..]), (8, &good[..4])] {
        bench.fails_with(&set(length), list, sense::PARAMETER_LIST_LENGTH_ERROR);
    }
    // A group that is not there; a state that is reserved, or only passed through.
    for (state, group, byte) in [(0, 9, 6), (5, 7, 4), (0xF, 7, 4)] {
        let ended = bench.fails_with(
            &set(8),
            &[0, 0, 0, 0, state, 0, 0, group],
            sense::INVALID_FIELD_IN_PARAMETER_LIST,
        );
        assert_eq!(ended.sense[15..18], [0x80, 0, byte]);
    }
    cluster.change(|groups| groups.groups[0].supported = States::of(&[State::ActiveOptimized]));
    bench.unit.access_changed();
    bench.fails_with(&set(8), &good, sense::INVALID_FIELD_IN_PARAMETER_LIST);
}

#[test]
fn a_change_that_cannot_be_made_is_said_to_have_failed() {
    // SPC-4, SET TARGET PORT GROUPS: SET TARGET PORT GROUPS COMMAND FAILED.
    let cluster = Cluster::new(true);
    let mut bench = bench(&cluster);
    *cluster.refuses.lock().unwrap() = Some(Refusal::Transitioning);
    let list = [0, 0, 0, 0, 1, 0, 0, 7];
    bench.fails_with(&set(8), &list, sense::ASYMMETRIC_ACCESS_STATE_TRANSITION);
    *cluster.refuses.lock().unwrap() = Some(Refusal::Failed);
    bench.fails_with(&set(8), &[0, 0, 0, 0, 1, 0, 0, 7], sense::SET_TARGET_PORT_GROUPS_COMMAND_FAILED);
    bench.passes(&[0; 6]);
}

#[test]
fn the_rows_of_the_table_agree_with_the_clauses() {
    let through_standby = |code: u8| {
        let rows = opcode::all().iter().filter(|row| row.code == code);
        rows.map(|row| row.paths).collect::<Vec<_>>()
    };
    assert_eq!(through_standby(0x28), [opcode::Paths::Active]);
    assert_eq!(through_standby(0x12), [opcode::Paths::Any]);
    assert_eq!(through_standby(0xA4), [opcode::Paths::Settled]);
    // SPC-4: the echo buffer modes alone.
    assert_eq!(opcode::Paths::EchoBuffer.of(&[0x3C, 0x0A]), opcode::Paths::Any);
    assert_eq!(opcode::Paths::EchoBuffer.of(&[0x3C, 0x02]), opcode::Paths::Active);
}

/// SET TARGET PORT GROUPS, begun and not yet carried out.
fn begin(bench: &mut Bench, by: ring::Nexus, list: &[u8]) -> (Vec<Io>, Continuation) {
    match bench.unit.execute(&set(list.len() as u8), by, &out(list)) {
        Step::Io { io, then, .. } => (io.into_iter().collect(), then),
        Step::Done(reply) => panic!("{reply:?}"),
    }
}

fn end(bench: &mut Bench, list: &[u8], (io, then): (Vec<Io>, Continuation)) {
    let mut buffer = out(list);
    let mut results: Vec<_> = io.into_iter().map(|io| bench.carry_out(io, &mut buffer)).collect();
    let Step::Done(reply) = bench.unit.resume(then, &mut results, &buffer) else { panic!("no end") };
    assert_eq!(reply.status, status::GOOD);
}

#[test]
fn who_sets_states_at_the_same_time_hears_of_the_others_change_and_not_of_its_own() {
    // SPC-4, explicit asymmetric logical units access management: every I_T nexus but the one that the command came by.
    let cluster = Cluster::new(true);
    let mut bench = bench(&cluster);
    let (first, second) = (bench.session.nexus(), bench.second());
    let (one, other) = ([0, 0, 0, 0, 1, 0, 0, 7], [0, 0, 0, 0, 0, 0, 0, 8]);
    let hears = |bench: &mut Bench, by: ring::Nexus| {
        let ended = bench.run_as(by, &[0; 6], &mut none());
        (ended.status != status::GOOD).then(|| code(&ended.sense))
    };
    let told = Some(sense::ASYMMETRIC_ACCESS_STATE_CHANGED.code());
    let (ones, others) = (begin(&mut bench, first, &one), begin(&mut bench, second.nexus(), &other));
    end(&mut bench, &one, ones);
    assert_eq!((hears(&mut bench, first), hears(&mut bench, second.nexus())), (None, told));
    end(&mut bench, &other, others);
    assert_eq!((hears(&mut bench, first), hears(&mut bench, second.nexus())), (told, None));
    // Both changes in one picture: each hears of the other's.
    let (one, other) = ([0, 0, 0, 0, 0, 0, 0, 7], [0, 0, 0, 0, 1, 0, 0, 8]);
    let (ones, others) = (begin(&mut bench, first, &one), begin(&mut bench, second.nexus(), &other));
    cluster.change(|groups| {
        (groups.groups[0].state, groups.groups[1].state) =
            (State::ActiveOptimized, State::ActiveNonOptimized);
    });
    bench.unit.access_changed();
    assert_eq!((hears(&mut bench, first), hears(&mut bench, second.nexus())), (told, told));
    end(&mut bench, &one, ones);
    // An aborted one leaves nothing behind.
    bench.unit.command_aborted(&others.1);
    cluster.change(|groups| groups.groups[1].state = State::Standby);
    bench.unit.access_changed();
    assert_eq!((hears(&mut bench, first), hears(&mut bench, second.nexus())), (told, told));
}
