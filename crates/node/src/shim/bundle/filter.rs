//! Which system calls a container may make whose pod asks for the runtime's own profile (`RuntimeDefault`).
//!
//! The list names what is refused, by the capability that would allow it: programs that come with a newer kernel's calls run.

use serde_json::{Value, json};

use crate::runtime::spec::Container;

/// Keys that belong to nobody's namespace, ways into the kernel with a history of holes, and calls that are long gone.
const NEVER: [&str; 13] = [
    "_sysctl",
    "add_key",
    "create_module",
    "get_kernel_syms",
    "io_uring_enter",
    "io_uring_register",
    "io_uring_setup",
    "keyctl",
    "nfsservctl",
    "query_module",
    "request_key",
    "userfaultfd",
    "uselib",
];
/// What needs a capability anyway in the machine's own user namespace, and would be had in one of the container's making.
const UNLESS: [(&str, &[&str]); 10] = [
    (
        "CAP_SYS_ADMIN",
        &[
            "bpf",
            "fanotify_init",
            "fsconfig",
            "fsmount",
            "fsopen",
            "fspick",
            "lookup_dcookie",
            "mount",
            "mount_setattr",
            "move_mount",
            "open_tree",
            "perf_event_open",
            "pivot_root",
            "quotactl",
            "quotactl_fd",
            "setdomainname",
            "sethostname",
            "setns",
            "swapoff",
            "swapon",
            "syslog",
            "umount",
            "umount2",
            "unshare",
        ],
    ),
    ("CAP_DAC_READ_SEARCH", &["open_by_handle_at"]),
    ("CAP_SYS_BOOT", &["kexec_file_load", "kexec_load", "reboot"]),
    ("CAP_SYS_CHROOT", &["chroot"]),
    ("CAP_SYS_MODULE", &["delete_module", "finit_module", "init_module"]),
    ("CAP_SYS_NICE", &["get_mempolicy", "mbind", "move_pages", "set_mempolicy"]),
    ("CAP_SYS_PACCT", &["acct"]),
    ("CAP_SYS_PTRACE", &["kcmp", "process_vm_readv", "process_vm_writev"]),
    ("CAP_SYS_RAWIO", &["ioperm", "iopl"]),
    ("CAP_SYS_TIME", &["clock_adjtime", "clock_settime", "settimeofday", "stime"]),
];
/// Every kind of namespace that `clone` makes: mounts, cgroups, host names, IPC, users, processes, networks.
const NEW_NAMESPACES: [u64; 7] =
    [0x0002_0000, 0x0200_0000, 0x0400_0000, 0x0800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000];
/// Sockets to the machine that this one is a guest of.
const AF_VSOCK: u64 = 40;
const EPERM: u32 = 1;
const ENOSYS: u32 = 38;

/// The filter, if the container has one.
pub(super) fn filter(container: &Container) -> Option<Value> {
    if !container.filtered || container.privileged {
        return None;
    }
    let has = |capability: &str| container.capabilities.iter().any(|one| one == capability);
    let refused: Vec<&str> =
        UNLESS.iter().filter(|(capability, _)| !has(capability)).flat_map(|(_, calls)| *calls).copied().collect();
    let mut rules = vec![
        rule(&NEVER, EPERM, &Value::Null),
        rule(&["socket"], EPERM, &json!([{ "index": 0, "value": AF_VSOCK, "op": "SCMP_CMP_EQ" }])),
    ];
    if !refused.is_empty() {
        rules.push(rule(&refused, EPERM, &Value::Null));
    }
    if !has("CAP_SYS_ADMIN") {
        for flag in NEW_NAMESPACES {
            let with = json!([{ "index": 0, "value": flag, "valueTwo": flag, "op": "SCMP_CMP_MASKED_EQ" }]);
            rules.push(rule(&["clone"], EPERM, &with));
        }
        // Its flags are in memory, where no filter sees them: whoever is told that it does not exist uses the older one.
        rules.push(rule(&["clone3"], ENOSYS, &Value::Null));
    }
    Some(json!({
        "defaultAction": "SCMP_ACT_ALLOW",
        "architectures": ["SCMP_ARCH_X86_64", "SCMP_ARCH_X86", "SCMP_ARCH_X32"],
        "syscalls": rules,
    }))
}

fn rule(names: &[&str], error: u32, arguments: &Value) -> Value {
    let mut rule = json!({ "names": names, "action": "SCMP_ACT_ERRNO", "errnoRet": error });
    if !arguments.is_null() {
        rule["args"] = arguments.clone();
    }
    rule
}
