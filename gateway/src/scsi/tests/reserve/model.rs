//! Random orders and commands of several nexuses, against a model of SPC-4's rules that shares nothing with the engine.

use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::scsi::tests::cdb10;

/// What an initiator does next.
#[derive(Clone, Debug)]
enum Act {
    Order { who: usize, action: u8, kind: u8, key: u64, service_key: u64, everywhere: bool },
    Read { who: usize },
    Write { who: usize },
    LogInAgain { who: usize },
    PowerCycle,
}

/// Two initiator ports, each at two target ports.
const NEXUSES: usize = 4;

/// Three rules: who has which key, who holds what, how often it has changed.
#[derive(Clone, Debug, Default)]
struct Model {
    keys: BTreeMap<usize, u64>,
    /// Type, and the holder where there is one.
    reservation: Option<(u8, Option<usize>)>,
    generation: u32,
}

/// How the model expects an order to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Good,
    Conflict,
    Check,
}

fn all_registrants(kind: u8) -> bool {
    kind == WEAR || kind == EAAR
}

fn valid(kind: u8) -> bool {
    [WE, EA, WERO, EARO, WEAR, EAAR].contains(&kind)
}

impl Model {
    fn holder(&self, who: usize) -> bool {
        match self.reservation {
            Some((kind, _)) if all_registrants(kind) => self.keys.contains_key(&who),
            Some((_, holder)) => holder == Some(who),
            None => false,
        }
    }

    fn may(&self, who: usize, writes: bool) -> bool {
        let Some((kind, _)) = self.reservation else { return true };
        let reads_excluded = [EA, EARO, EAAR].contains(&kind);
        let shared = ![WE, EA].contains(&kind);
        self.holder(who) || shared && self.keys.contains_key(&who) || !writes && !reads_excluded
    }

    fn take(&mut self, who: usize, kind: u8) {
        self.reservation = Some((kind, (!all_registrants(kind)).then_some(who)));
    }

    fn settle(&mut self) {
        let gone = match self.reservation {
            Some((_, Some(holder))) => !self.keys.contains_key(&holder),
            Some((_, None)) => self.keys.is_empty(),
            None => false,
        };
        if gone {
            self.reservation = None;
        }
        self.generation += 1;
    }

    fn register(&mut self, who: usize, action: u8, key: u64, service_key: u64, everywhere: bool) -> End {
        let own = self.keys.get(&who).copied();
        let all = if everywhere { vec![who, who ^ 1] } else { vec![who] };
        let theirs: Vec<u64> = all.iter().filter_map(|port| self.keys.get(port).copied()).collect();
        if action == REGISTER && (own.unwrap_or(0) != key || theirs.iter().any(|there| *there != key)) {
            return End::Conflict;
        }
        if service_key == 0 && theirs.is_empty() {
            return End::Good;
        }
        for port in all {
            match service_key {
                0 => drop(self.keys.remove(&port)),
                key => drop(self.keys.insert(port, key)),
            }
        }
        self.settle();
        End::Good
    }

    fn order(&mut self, who: usize, action: u8, kind: u8, key: u64, service_key: u64) -> End {
        let own = self.keys.get(&who).copied();
        if own != Some(key) {
            return End::Conflict;
        }
        match action {
            RESERVE if !valid(kind) => return End::Check,
            RESERVE => match self.reservation {
                None => self.take(who, kind),
                Some((held, _)) if self.holder(who) && held == kind => {}
                Some(_) => return End::Conflict,
            },
            RELEASE if !self.holder(who) => {}
            RELEASE => match self.reservation {
                Some((held, _)) if held != kind => return End::Check,
                _ => self.reservation = None,
            },
            CLEAR => {
                self.keys.clear();
                self.reservation = None;
                self.settle();
            }
            _ => {
                let all = self.reservation.is_some_and(|(kind, _)| all_registrants(kind));
                if service_key == 0 && !all {
                    return End::Check;
                }
                let holders_key = match self.reservation {
                    Some((_, Some(holder))) => self.keys.get(&holder).copied(),
                    Some((_, None)) => Some(0),
                    None => None,
                };
                if holders_key == Some(service_key) {
                    if !valid(kind) {
                        return End::Check;
                    }
                    self.keys.retain(|other, key| *other == who || service_key != 0 && *key != service_key);
                    self.take(who, kind);
                } else {
                    let before = self.keys.len();
                    self.keys.retain(|_, key| *key != service_key);
                    if self.keys.len() == before {
                        return End::Conflict;
                    }
                }
                self.settle();
            }
        }
        End::Good
    }
}

fn acts() -> impl Strategy<Value = Act> {
    let kinds = prop_oneof![8 => prop::sample::select(vec![WE, EA, WERO, EARO, WEAR, EAAR]), 1 => 0..16_u8];
    let actions = prop_oneof![3 => Just(REGISTER), 2 => Just(RESERVE), 1 => Just(RELEASE), 1 => Just(CLEAR),
        2 => Just(PREEMPT), 1 => Just(PREEMPT_AND_ABORT), 2 => Just(REGISTER_AND_IGNORE)];
    let order = (0..NEXUSES, actions, kinds, 0..4_u64, 0..4_u64, any::<bool>()).prop_map(
        |(who, action, kind, key, service_key, everywhere)| Act::Order {
            who,
            action,
            kind,
            key,
            service_key,
            everywhere,
        },
    );
    prop_oneof![
        20 => order,
        4 => (0..NEXUSES).prop_map(|who| Act::Read { who }),
        4 => (0..NEXUSES).prop_map(|who| Act::Write { who }),
        2 => (0..NEXUSES).prop_map(|who| Act::LogInAgain { who }),
        1 => Just(Act::PowerCycle),
    ]
}

/// Runs a command past any unit attentions.
fn run(bench: &mut Bench, by: &Handle, cdb: &[u8], data: &[u8]) -> u8 {
    while bench.hears(by).is_some() {}
    bench.status(by, cdb, data)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    #[test]
    fn any_sequence_of_orders_is_carried_out_by_the_rules(
        persistent in any::<bool>(),
        acts in vec(acts(), 1..60),
    ) {
        let mut bench = Bench::of_two_ports();
        let join = |bench: &mut Bench, who: usize| {
            bench.join(&format!("iqn.2026-01.example:n{}", who / 2), 0, 3 + who as u16 % 2)
        };
        let mut sessions: Vec<_> = (0..NEXUSES).map(|who| join(&mut bench, who)).collect();
        let mut model = Model::default();
        let flags = if persistent { APTPL } else { 0 };
        for act in acts {
            match act {
                Act::Order { who, action, kind, key, service_key, everywhere } => {
                    let registers = action == REGISTER || action == REGISTER_AND_IGNORE;
                    let expected = match registers {
                        true => model.register(who, action, key, service_key, everywhere),
                        false => model.order(who, action, kind, key, service_key),
                    };
                    // SPC-4, ALL_TG_PT: ignored by every other service action.
                    let flags = flags | if everywhere { ALL_TG_PT } else { 0 };
                    let ended = bench.order(&sessions[who], action, kind, (key, service_key), flags);
                    let end = match ended.status {
                        status::GOOD => End::Good,
                        CONFLICT => End::Conflict,
                        _ => End::Check,
                    };
                    prop_assert_eq!(end, expected, "{:?}", act);
                }
                Act::Read { who } => {
                    let good = run(&mut bench, &sessions[who], &cdb10(0x28, 0, 1), &[]) == status::GOOD;
                    prop_assert_eq!(good, model.may(who, false));
                }
                Act::Write { who } => {
                    let good = run(&mut bench, &sessions[who], &cdb10(0x2A, 0, 1), &[1; 512]) == status::GOOD;
                    prop_assert_eq!(good, model.may(who, true));
                }
                Act::LogInAgain { who } => {
                    let old = sessions.remove(who);
                    drop(old);
                    sessions.insert(who, join(&mut bench, who));
                }
                Act::PowerCycle => {
                    storage::power_cycle(&mut bench).unwrap();
                    let kept = if persistent { model } else { Model::default() };
                    model = Model { generation: 0, ..kept };
                }
            }
            let (generation, mut keys) = bench.keys();
            let mut expected: Vec<u64> = model.keys.values().copied().collect();
            keys.sort_unstable();
            expected.sort_unstable();
            prop_assert_eq!((generation, keys), (model.generation, expected));
            let reserved = model.reservation.map(|(kind, holder)| {
                (holder.and_then(|holder| model.keys.get(&holder).copied()).unwrap_or(0), kind)
            });
            prop_assert_eq!(bench.reserved(), reserved);
        }
    }
}
