//! Task management (RFC 7143 sections 11.5 and 11.6).
//!
//! A command that its own nexus has aborted is never answered; one that another nexus has ended is answered TASK ABORTED
//! if the logical unit's TAS bit says so (SAM-5), which is the default here. A command that has not reached the ring ends at once; one in the ring ends
//! when the ring gives it back. The function is answered when every ended command that may change the medium has ended;
//! aborted READs are not waited for (their blocks stay with the ring until they end).

use std::sync::Arc;

use ring::{CommandId, TaskManagementKind};
use smallvec::SmallVec;

use super::Port;
use super::conn::{Connection, Delivery};
use super::inbox::{End, Hold};
use super::luns::ABSENT;
use super::pdu::{TaskManagementRequest, TaskManagementResponse, before};
use super::task::{Failure, Key, State, Task};

/// Responses (11.6.1).
const COMPLETE: u8 = 0;
const NO_TASK: u8 = 1;
const NO_LUN: u8 = 2;
const NO_REASSIGN: u8 = 4;
const UNSUPPORTED: u8 = 5;
const REJECTED: u8 = 255;

/// Functions (11.5.1).
const ABORT_TASK: u8 = 1;
const ABORT_TASK_SET: u8 = 2;
const CLEAR_ACA: u8 = 3;
const CLEAR_TASK_SET: u8 = 4;
const LUN_RESET: u8 = 5;
const WARM_RESET: u8 = 6;
const COLD_RESET: u8 = 7;
const REASSIGN: u8 = 8;

/// What is answered once the ended commands have ended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// A task management function, by its tag.
    Function(u32),
    /// TARGET COLD RESET: answered, then every connection is closed.
    ColdReset(u32),
    /// A logout.
    Logout(u32),
}

/// Something that waits for commands to end.
#[derive(Debug)]
pub(super) struct Managing {
    pub(super) serial: u32,
    pub(super) answer: Answer,
}

/// A notice for a lane that did not fit the ring yet.
#[derive(Debug)]
pub(super) struct Notice {
    pub(super) at: usize,
    kind: TaskManagementKind,
    ids: SmallVec<[CommandId; 16]>,
}

impl Connection {
    /// Carries out one function.
    pub(super) fn manage(&mut self, request: &TaskManagementRequest) {
        tracing::debug!(function = request.function, initiator = %self.session.initiator, "task management");
        let at = self.luns.route(request.lun);
        let response = match request.function {
            ABORT_TASK => return self.abort_task(request),
            ABORT_TASK_SET | CLEAR_TASK_SET | LUN_RESET if at == ABSENT => NO_LUN,
            // All targets share the one unit: what an initiator may end there is its own.
            CLEAR_TASK_SET | LUN_RESET if self.luns.is_well_known(at) => {
                return self.end_set(request, &[at], TaskManagementKind::AbortTaskSet);
            }
            ABORT_TASK_SET => return self.end_set(request, &[at], TaskManagementKind::AbortTaskSet),
            CLEAR_TASK_SET => return self.end_set(request, &[at], TaskManagementKind::ClearTaskSet),
            LUN_RESET => return self.end_set(request, &[at], TaskManagementKind::LunReset),
            // The target is what the initiator sees of it: LUNs that are kept from it are none of its business.
            WARM_RESET => {
                return self.end_set(request, &self.luns.visible(), TaskManagementKind::TargetWarmReset);
            }
            COLD_RESET => {
                return self.end_set(request, &self.luns.visible(), TaskManagementKind::TargetColdReset);
            }
            CLEAR_ACA => UNSUPPORTED,
            REASSIGN => NO_REASSIGN,
            _ => REJECTED,
        };
        self.answer_function(request.task_tag, response);
    }

    fn answer_function(&mut self, task_tag: u32, response: u8) {
        let answer = TaskManagementResponse { response, task_tag, ..TaskManagementResponse::default() };
        self.transmit.status(answer.encode(), Vec::new());
    }

    fn abort_task(&mut self, request: &TaskManagementRequest) {
        // A command aborted before may still be in the ring: whoever asks again waits for it again.
        let (tag, lun) = (request.referenced_tag, request.lun);
        let tagged = |task: &Task| task.tag == tag && task.lun == lun;
        // 11.5.5: the number is the command's too, or nothing is aborted. (An immediate one has none of its own.)
        let named = |task: &Task| tagged(task) && (task.immediate || task.cmd_sn == request.ref_cmd_sn);
        if !self.tasks.iter().any(named) {
            if self.tasks.iter().any(|task| tagged(task) && !task.aborted) {
                return self.answer_function(request.task_tag, REJECTED);
            }
            // 11.5.5: a command still on its way counts as received, and is dropped when it comes.
            let number = request.ref_cmd_sn;
            let on_its_way = self.window.standing(number) != super::window::Standing::Outside
                && before(number, request.cmd_sn)
                && !self.held.contains_key(&number);
            if on_its_way {
                self.held.insert(number, Delivery::Nothing);
                self.deliver_held();
            }
            return self.answer_function(request.task_tag, if on_its_way { COMPLETE } else { NO_TASK });
        }
        let (serial, hold) = self.new_hold();
        self.managing.push(Managing { serial, answer: Answer::Function(request.task_tag) });
        self.abort_own(named, &hold, Some(TaskManagementKind::AbortTask));
    }

    /// Ends the commands at some LUNs, for ABORT TASK SET this nexus' only, else those of every nexus.
    fn end_set(&mut self, request: &TaskManagementRequest, at: &[usize], kind: TaskManagementKind) {
        let (serial, hold) = self.new_hold();
        let answer = match kind {
            TaskManagementKind::TargetColdReset => Answer::ColdReset(request.task_tag),
            _ => Answer::Function(request.task_tag),
        };
        self.managing.push(Managing { serial, answer });
        let number = request.cmd_sn;
        // Commands that came before the function, be they delivered or not.
        let earlier = |task: &Task| {
            !matches!(task.state, State::Arriving) || !task.immediate && before(task.cmd_sn, number)
        };
        for &index in at {
            if kind != TaskManagementKind::AbortTaskSet {
                let port = Arc::clone(&self.luns.get(index).port);
                let cleared = kind == TaskManagementKind::ClearTaskSet;
                port.abort_others(&self.inbox, &hold, cleared);
            }
            let mut ids = SmallVec::new();
            self.abort_where(|task| task.at == index && earlier(task), &hold, &mut ids);
            // A reset is noticed by the lane even when there is nothing to end.
            let always = !matches!(kind, TaskManagementKind::AbortTaskSet | TaskManagementKind::ClearTaskSet);
            if always || !ids.is_empty() {
                self.notify(Notice { at: index, kind, ids });
            }
        }
    }

    /// Ends own commands; the lanes are told of those in a ring, as `kind` or else one by one.
    pub(super) fn abort_own(
        &mut self,
        select: impl Fn(&Task) -> bool,
        hold: &Hold,
        kind: Option<TaskManagementKind>,
    ) {
        let mut at: SmallVec<[usize; 8]> =
            self.tasks.iter().filter(|task| select(task)).map(|task| task.at).collect();
        at.sort_unstable();
        at.dedup();
        for index in at {
            let mut ids = SmallVec::new();
            self.abort_where(|task| task.at == index && select(task), hold, &mut ids);
            if !ids.is_empty() {
                self.notify(Notice { at: index, kind: kind.unwrap_or(TaskManagementKind::AbortTask), ids });
            }
        }
    }

    fn abort_where(
        &mut self,
        select: impl Fn(&Task) -> bool,
        hold: &Hold,
        ids: &mut SmallVec<[CommandId; 16]>,
    ) {
        // Those held back go first: the end of those before them must not start one of them.
        let (started, held_back): (SmallVec<[Key; 16]>, SmallVec<[Key; 16]>) = self
            .tasks
            .select(select)
            .into_iter()
            .partition(|key| self.tasks.get(*key).is_some_and(|task| task.started));
        for key in held_back.into_iter().chain(started) {
            self.abort(key, hold, ids);
        }
    }

    fn abort(&mut self, key: Key, hold: &Hold, ids: &mut SmallVec<[CommandId; 16]>) {
        let Some(task) = self.tasks.get_mut(key) else { return };
        if let State::Running(id) = task.state {
            if !task.aborted {
                ids.push(id);
            }
            task.aborted = true;
            if task.may_write() {
                task.holds.push(hold.clone());
            }
            self.tasks.release_tag(key);
        } else {
            self.end(key);
        }
    }

    /// Another nexus has ended the commands at a LUN. Commands that are not all here, or wait for those before them, have
    /// not entered the task set (SAM-5).
    pub(super) fn abort_at(&mut self, port: &Arc<Port>, hold: &Hold, cleared: bool) {
        let Some(index) = self.luns.position(port) else { return };
        let entered =
            |task: &Task| task.at == index && !matches!(task.state, State::Arriving) && !task.aborted;
        if !port.answers_aborted() {
            let lost = self.tasks.iter().any(entered);
            if let Some(number) = self.luns.number(index).filter(|_| cleared && lost) {
                self.shared.nexuses.cleared(self.inbox.nexus(), number);
            }
            // The lane has been told by the other nexus which commands are its own; these are told here.
            return self.abort_own(entered, hold, Some(TaskManagementKind::AbortTask));
        }
        // The lane answers what it has; the others are answered here.
        let mut ids = SmallVec::new();
        let (started, held_back): (SmallVec<[Key; 16]>, SmallVec<[Key; 16]>) = self
            .tasks
            .select(entered)
            .into_iter()
            .partition(|key| self.tasks.get(*key).is_some_and(|task| task.started));
        for key in held_back.into_iter().chain(started) {
            let Some(task) = self.tasks.get_mut(key) else { continue };
            if let State::Running(id) = task.state {
                ids.push(id);
                if task.may_write() {
                    task.holds.push(hold.clone());
                }
            } else {
                self.fail(key, Failure::Aborted);
            }
        }
        if !ids.is_empty() {
            self.notify(Notice { at: index, kind: TaskManagementKind::AbortTask, ids });
        }
    }

    fn notify(&mut self, notice: Notice) {
        self.notices.push(notice);
        self.send_notices();
    }

    /// Writes notices to the rings, as far as there is room.
    pub(super) fn send_notices(&mut self) {
        let mut left = Vec::new();
        for notice in std::mem::take(&mut self.notices) {
            let port = Arc::clone(&self.luns.get(notice.at).port);
            if port.producer().push_task_management(notice.kind, &notice.ids) {
                self.mark_dirty(notice.at);
            } else if !port.failed() {
                if !port.producer().wait_room(&self.waker) {
                    // Room has come up meanwhile.
                    self.waker.wake_by_ref();
                }
                left.push(notice);
            }
        }
        self.notices = left;
    }

    /// Everything that an answer waited for has ended.
    pub(super) fn released(&mut self, serial: u32) {
        let Some(index) = self.managing.iter().position(|managing| managing.serial == serial) else { return };
        match self.managing.swap_remove(index).answer {
            Answer::Function(task_tag) => self.answer_function(task_tag, COMPLETE),
            Answer::ColdReset(task_tag) => {
                self.answer_function(task_tag, COMPLETE);
                self.closing = Some(End::Reset);
                for index in self.luns.visible() {
                    let port = Arc::clone(&self.luns.get(index).port);
                    port.close_others(&self.inbox);
                }
            }
            Answer::Logout(task_tag) => self.logged_out(task_tag),
        }
    }

    /// Makes `hold` wait for every command in a ring that may change the medium.
    pub(super) fn hold_all(&mut self, hold: &Hold) {
        for lun in self.luns.iter_mut() {
            if let Some(guard) = lun.guarded() {
                guard.attach(hold.clone());
            }
        }
    }

    /// The connection is over: the lanes are told, and whoever waits for one of its commands goes on waiting for it.
    pub(super) fn abandon(&mut self) {
        for key in self.tasks.select(|task| !task.holds.is_empty()) {
            let Some(task) = self.tasks.get_mut(key) else { continue };
            let (at, holds) = (task.at, std::mem::take(&mut task.holds));
            if let Some(guard) = self.luns.get(at).guarded() {
                holds.into_iter().for_each(|hold| guard.attach(hold));
            }
        }
        let nobody = Hold::new(|| ());
        self.abort_own(|task| !task.aborted, &nobody, None);
        for at in std::mem::take(&mut self.dirty) {
            self.luns.get(at).port.publish();
        }
        self.inbox.close();
    }

    /// The ring of a LUN is corrupt, or its lane has ended: what was in it is answered so, and nobody waits for it any more.
    pub(super) fn fail_port(&mut self, port: &Arc<Port>) {
        let Some(index) = self.luns.position(port) else { return };
        if let Some(guard) = self.luns.get(index).guarded() {
            guard.void();
        }
        let sense = port.failure().unwrap_or(super::sense::Sense::FAILED);
        for key in self.tasks.select(|task| task.at == index && matches!(task.state, State::Running(_))) {
            self.fail(key, Failure::Sense(sense));
        }
    }
}
