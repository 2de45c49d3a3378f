//! Finds out whether the kernel killed a process of our cgroup because memory ran out.

use std::path::PathBuf;

/// The kernel's count of out-of-memory kills, in this process' cgroup of either version; zero where it keeps none.
pub(crate) fn kills() -> u64 {
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    counters(&groups).iter().filter_map(|file| std::fs::read_to_string(file).ok()).map(|text| count(&text)).sum()
}

/// The files that may hold the count, from `/proc/self/cgroup`.
fn counters(groups: &str) -> Vec<PathBuf> {
    groups
        .lines()
        .filter_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            match controllers {
                "" => Some(format!("/sys/fs/cgroup{path}/memory.events")),
                list if list.split(',').any(|name| name == "memory") => {
                    Some(format!("/sys/fs/cgroup/memory{path}/memory.oom_control"))
                }
                _ => None,
            }
        })
        .map(PathBuf::from)
        .collect()
}

fn count(text: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix("oom_kill "))
        .and_then(|count| count.trim().parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_cgroups_are_found() {
        assert_eq!(counters("0::/pod/x\n"), [PathBuf::from("/sys/fs/cgroup/pod/x/memory.events")]);
        let hybrid = "5:memory:/pod\n4:cpu,cpuacct:/pod\n0::/\n";
        assert_eq!(
            counters(hybrid),
            [PathBuf::from("/sys/fs/cgroup/memory/pod/memory.oom_control"), "/sys/fs/cgroup//memory.events".into()]
        );
    }

    #[test]
    fn the_count_is_read_from_either_file() {
        assert_eq!(count("low 0\nhigh 0\noom 2\noom_kill 1\n"), 1);
        assert_eq!(count("oom_kill_disable 0\nunder_oom 0\noom_kill 3\n"), 3);
        assert_eq!(count(""), 0);
    }
}
