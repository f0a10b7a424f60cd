//! What the kernel refuses, by what is asked of it.

use std::io;

use super::{Node, State, error};

/// Attributes that cannot be read.
pub(super) const WRITE_ONLY: [&str; 3] = ["/control", "/action/reset_ring", "/action/free_kept_buf"];

const BACKSTORE: [(&str, &str); 19] = [
    ("control", ""),
    ("enable", "0"),
    ("attrib/dev_config", ""),
    ("attrib/dev_size", "0"),
    ("attrib/hw_block_size", "512"),
    ("attrib/hw_max_sectors", "128"),
    ("attrib/max_data_area_mb", "1024"),
    ("attrib/data_pages_per_blk", "1"),
    ("attrib/cmd_ring_size_mb", "8"),
    ("attrib/cmd_time_out", "30"),
    ("attrib/qfull_time_out", "-1"),
    ("attrib/emulate_pr", "1"),
    ("attrib/tmr_notification", "0"),
    ("attrib/nl_reply_supported", "0"),
    ("wwn/vpd_unit_serial", "T10 VPD Unit Serial Number: "),
    ("action/block_dev", "0"),
    ("action/reset_ring", ""),
    ("action/free_kept_buf", ""),
    ("alua/default_tg_pt_gp/tg_pt_gp_id", "0"),
];
const READ_ONLY: [&str; 5] =
    ["hw_block_size", "hw_max_sectors", "max_data_area_mb", "data_pages_per_blk", "cmd_ring_size_mb"];
const GROUP: [&str; 14] = [
    "enable",
    "attrib/authentication",
    "attrib/generate_node_acls",
    "attrib/cache_dynamic_acls",
    "attrib/demo_mode_write_protect",
    "attrib/default_cmdsn_depth",
    "attrib/login_timeout",
    "param/HeaderDigest",
    "param/DataDigest",
    "param/InitialR2T",
    "param/ImmediateData",
    "param/FirstBurstLength",
    "param/MaxBurstLength",
    "param/MaxOutstandingR2T",
];
const ACL: [&str; 7] = [
    "cmdsn_depth",
    "attrib/nopin_timeout",
    "attrib/nopin_response_timeout",
    "auth/userid",
    "auth/password",
    "auth/userid_mutual",
    "auth/password_mutual",
];

fn put(state: &mut State, folder: &str, path: &str, value: &str) {
    let mut at = folder.to_owned();
    let mut parts: Vec<&str> = path.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    for part in parts {
        at = format!("{at}/{part}");
        state.nodes.entry(at.clone()).or_insert(Node::Folder(false));
    }
    state.nodes.insert(format!("{at}/{name}"), Node::Attribute(value.into()));
}

fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn value<'a>(state: &'a State, path: &str) -> &'a str {
    match state.nodes.get(path) {
        Some(Node::Attribute(value)) => value,
        _ => "",
    }
}

fn is_tied(state: &State, path: &str) -> bool {
    state.nodes.values().any(|node| matches!(node, Node::Link(to) if to == path))
}

fn has_link(state: &State, folder: &str) -> bool {
    state.nodes.iter().any(|(path, node)| matches!(node, Node::Link(_)) && folder_of(path) == folder)
}

pub(super) fn make(state: &mut State, path: &str) -> io::Result<()> {
    if state.nodes.contains_key(path) {
        return Err(error(libc::EEXIST));
    }
    let is_fabric = matches!(path, "iscsi" | "loopback");
    if !is_fabric && !matches!(state.nodes.get(folder_of(path)), Some(Node::Folder(_))) {
        return Err(error(libc::ENOENT));
    }
    let parts: Vec<&str> = path.split('/').collect();
    let attributes: Vec<(&str, &str)> = match parts.as_slice() {
        ["iscsi" | "loopback"] | ["core" | "iscsi" | "loopback", _] => Vec::new(),
        ["core", _, _] => BACKSTORE.to_vec(),
        ["core", _, _, "alua", _] => {
            vec![("tg_pt_gp_id", "0"), ("alua_access_type", "Implicit and Explicit")]
        }
        ["iscsi", _, group] if group.starts_with("tpgt_") => GROUP.iter().map(|name| (*name, "0")).collect(),
        ["loopback", _, group] if group.starts_with("tpgt_") => vec![("nexus", ""), ("address", "0:0:0")],
        [_, _, _, "lun", lun] if lun.starts_with("lun_") => vec![("alua_tg_pt_gp", "TG Port Alias: none")],
        ["iscsi", _, _, "np", _] => vec![("iser", "0")],
        ["iscsi", _, _, "acls", _] => ACL.iter().map(|name| (*name, "")).collect(),
        ["iscsi", _, _, "acls", _, lun] if lun.starts_with("lun_") => vec![("write_protect", "0")],
        _ => return Err(error(libc::EPERM)),
    };
    state.nodes.insert(path.into(), Node::Folder(true));
    for (name, value) in attributes {
        put(state, path, name, value);
    }
    if parts.len() == 3 && parts[0] != "core" {
        for folder in ["lun", "np", "acls"] {
            state.nodes.insert(format!("{path}/{folder}"), Node::Folder(false));
        }
    }
    Ok(())
}

pub(super) fn remove(state: &mut State, path: &str) -> io::Result<()> {
    match state.nodes.get(path) {
        Some(Node::Folder(true)) => {}
        Some(_) => return Err(error(libc::EPERM)),
        None => return Err(error(libc::ENOENT)),
    }
    let inside = format!("{path}/");
    let is_full = state.nodes.iter().any(|(found, node)| {
        found.starts_with(&inside) && matches!(node, Node::Folder(true) | Node::Link(_))
    });
    if is_full {
        return Err(error(libc::ENOTEMPTY));
    }
    if is_tied(state, path) {
        return Err(error(libc::EBUSY));
    }
    state.nodes.retain(|found, _| found != path && !found.starts_with(&inside));
    Ok(())
}

pub(super) fn link(state: &mut State, path: &str, to: &str) -> io::Result<()> {
    if !state.nodes.contains_key(folder_of(path)) || !state.nodes.contains_key(to) {
        return Err(error(libc::ENOENT));
    }
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        [_, _, _, "lun", _, _] => {
            if value(state, &format!("{to}/enable")) != "1" {
                return Err(error(libc::ENODEV));
            }
        }
        ["iscsi", _, _, "acls", _, _, _] => {
            if !has_link(state, to) {
                return Err(error(libc::EINVAL));
            }
        }
        _ => return Err(error(libc::EPERM)),
    }
    if has_link(state, folder_of(path)) {
        return Err(error(libc::EEXIST));
    }
    state.nodes.insert(path.into(), Node::Link(to.into()));
    Ok(())
}

pub(super) fn write(state: &mut State, path: &str, text: &str) -> io::Result<()> {
    if !matches!(state.nodes.get(path), Some(Node::Attribute(_))) {
        return Err(error(libc::ENOENT));
    }
    let text = text.trim_end();
    let parts: Vec<&str> = path.split('/').collect();
    let refused = Err(error(libc::EINVAL));
    let mut stored = text.to_owned();
    if let ["core", hba, name, rest @ ..] = parts.as_slice() {
        let device = format!("core/{hba}/{name}");
        let is_enabled = value(state, &format!("{device}/enable")) == "1";
        match rest {
            ["control"] => return control(state, &device, text, is_enabled),
            ["enable"] if text != "1" => return refused,
            ["enable"] if is_enabled => return Err(error(libc::EEXIST)),
            ["attrib", name] if READ_ONLY.contains(name) => return Err(error(libc::EACCES)),
            ["attrib", "cmd_time_out"] if is_tied(state, &device) => return refused,
            ["action", _] if !is_enabled => return refused,
            ["wwn", "vpd_unit_serial"] if is_tied(state, &device) => return refused,
            ["wwn", "vpd_unit_serial"] => stored = format!("T10 VPD Unit Serial Number: {text}"),
            // A group's number is set once.
            ["alua", _, "tg_pt_gp_id"] if value(state, path) != "0" => return refused,
            ["alua", _, "alua_access_type"] => {
                stored = if text == "1" { "Implicit".into() } else { text.into() }
            }
            _ => {}
        }
    }
    match parts.as_slice() {
        ["iscsi", _, _, "enable"] if value(state, path) == text => return refused,
        ["loopback", _, _, "nexus"] if text != "NULL" && !value(state, path).is_empty() => {
            return Err(error(libc::EEXIST));
        }
        [_, _, _, "lun", _, "alua_tg_pt_gp"] => {
            if !has_link(state, folder_of(path)) {
                return Err(error(libc::ENODEV));
            }
            stored = format!("TG Port Alias: {text}");
        }
        _ => {}
    }
    state.nodes.insert(path.into(), Node::Attribute(stored));
    Ok(())
}

fn control(state: &mut State, device: &str, text: &str, is_enabled: bool) -> io::Result<()> {
    for token in text.split([',', '\n']) {
        let Some((key, value)) = token.split_once('=') else { continue };
        assert!((key, value) != ("data_pages_per_blk", "0"), "older kernels divide by it");
        let path = format!("{device}/attrib/{key}");
        // Keys that the kernel does not know are passed over.
        if !state.nodes.contains_key(&path) {
            continue;
        }
        if is_enabled && matches!(key, "max_data_area_mb" | "data_pages_per_blk" | "cmd_ring_size_mb") {
            return Err(error(libc::EINVAL));
        }
        state.nodes.insert(path, Node::Attribute(value.into()));
    }
    Ok(())
}
