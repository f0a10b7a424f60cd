//! How much memory the pool may take when the configuration does not say.

use std::fs;
use std::path::Path;

/// The smaller of 2 GiB and a quarter of the cgroup's or the host's memory, bytes.
pub(super) fn default_pool() -> u64 {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| total(&text));
    let group = fs::read_to_string("/proc/self/cgroup")
        .ok()
        .and_then(|text| group_limit(Path::new("/sys/fs/cgroup"), &text));
    let memory = [host, group].into_iter().flatten().min().unwrap_or(8 << 30);
    (memory / 4).clamp(16 << 20, 2 << 30)
}

/// `MemTotal` of `/proc/meminfo`, bytes.
fn total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find(|line| line.starts_with("MemTotal:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok()?.checked_mul(1024)
}

/// The tightest `memory.max` from the process' cgroup (version 2) up to the root.
fn group_limit(root: &Path, cgroup: &str) -> Option<u64> {
    let own = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let folder = root.join(own);
    folder
        .ancestors()
        .take_while(|folder| folder.starts_with(root))
        .filter_map(|folder| fs::read_to_string(folder.join("memory.max")).ok()?.trim().parse::<u64>().ok())
        .min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tightest_cgroup_on_the_way_up_counts() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("pods/one");
        fs::create_dir_all(&inner).unwrap();
        fs::write(inner.join("memory.max"), "max\n").unwrap();
        fs::write(root.path().join("pods/memory.max"), "1073741824\n").unwrap();
        assert_eq!(group_limit(root.path(), "0::/pods/one\n"), Some(1 << 30));
        assert_eq!(group_limit(root.path(), "0::/other\n"), None);
    }

    #[test]
    fn meminfo_counts_in_kibibytes() {
        assert_eq!(total("MemTotal:       24683584 kB\nMemFree: 1 kB\n"), Some(24_683_584 << 10));
    }
}
