//! Any container gives a description that runtimes can read.

use std::path::PathBuf;

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::runtime::spec::{Mount, Propagation, Root, User};

fn facts() -> Facts {
    Facts {
        has_unified_cgroups: false,
        least_oom_score: -5,
        open_files: 1024,
        capabilities: vec!["CAP_CHOWN".to_owned(), "CAP_NET_RAW".to_owned()],
    }
}

fn places() -> ContainerPaths {
    ContainerPaths {
        root: "/state/root".into(),
        shared_memory: "/state/shm".into(),
        cgroup: "/orlop/poda/main".to_owned(),
        mounts: vec![mounts::Entry::read_only("/usr".as_ref(), "/usr")],
    }
}

fn container() -> Container {
    Container {
        name: "main".to_owned(),
        attempt: 0,
        root: Root::Machine { files: Vec::new() },
        args: vec!["/usr/bin/true".to_owned()],
        env: Vec::new(),
        cwd: String::new(),
        user: User::default(),
        mounts: Vec::new(),
        devices: Vec::new(),
        capabilities: Vec::new(),
        no_new_privileges: true,
        read_only_root: true,
        privileged: false,
        filtered: false,
        resources: Resources::default(),
        oom_score: None,
        tty: false,
        termination_message: None,
        message_from_log: false,
    }
}

fn mount_at(target: &str) -> Mount {
    Mount { source: "/srv".into(), target: target.to_owned(), read_only: false, propagation: Propagation::default() }
}

fn targets(config: &Value) -> Vec<String> {
    let mounts = config["mounts"].as_array().unwrap();
    mounts.iter().map(|mount| mount["destination"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn what_is_asked_for_replaces_what_is_given() {
    let asked = Container { mounts: vec![mount_at("/dev/shm"), mount_at("/tmp/")], ..container() };
    let config = config(&asked, &[], &places(), &facts()).unwrap();
    let shm: Vec<_> =
        config["mounts"].as_array().unwrap().iter().filter(|it| it["destination"] == "/dev/shm").collect();
    assert_eq!(shm.len(), 1);
    assert_eq!(shm[0]["source"], "/srv");
    assert!(targets(&config).contains(&"/tmp".to_owned()));
}

#[test]
fn mounts_that_lead_elsewhere_or_onto_the_root_are_refused() {
    for target in ["", "/", "tmp", "/a/../b", "/a\0b"] {
        let asked = Container { mounts: vec![mount_at(target)], ..container() };
        let refused = config(&asked, &[], &places(), &facts());
        assert!(matches!(refused, Err(BundleError::Mounts(MountsError::Target(_)))), "{target:?}");
    }
}

#[test]
fn a_score_below_what_is_allowed_is_raised() {
    let score = |wanted| {
        let asked = Container { oom_score: Some(wanted), ..container() };
        config(&asked, &[], &places(), &facts()).unwrap()["process"]["oomScoreAdj"].clone()
    };
    assert_eq!((score(-998), score(3), score(2000)), (json!(-5), json!(3), json!(1000)));
}

#[test]
fn a_later_variable_replaces_an_earlier_one() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let env = environment(&[pair("A", "1"), pair("B", "2"), pair("A", "3")]);
    assert_eq!(env, [format!("PATH={DEFAULT_PATH}"), "B=2".to_owned(), "A=3".to_owned()]);
    assert_eq!(environment(&[pair("PATH", "/bin")]), ["PATH=/bin"]);
}

#[test]
fn a_privileged_container_has_all_that_there_is() {
    let config = config(&Container { privileged: true, ..container() }, &[], &places(), &facts()).unwrap();
    assert_eq!(config["process"]["capabilities"]["bounding"], json!(["CAP_CHOWN", "CAP_NET_RAW"]));
    assert_eq!(config["linux"]["resources"]["devices"], json!([{"allow": true, "access": "rwm"}]));
    assert_eq!(config["linux"]["maskedPaths"], json!([]));
}

fn any_container() -> impl Strategy<Value = Container> {
    let resources = (any::<Option<u64>>(), any::<Option<i64>>(), any::<Option<u64>>(), any::<Option<u64>>());
    let resources = resources.prop_map(|(cpu_shares, cpu_quota_us, cpu_period_us, memory)| Resources {
        cpu_shares,
        cpu_quota_us,
        cpu_period_us,
        memory,
        pids: memory,
    });
    let mounts = vec(("(/[a-c]{1,2}){1,4}/?", any::<bool>()), 0..8);
    let text = "[ -~]{0,12}";
    (
        vec(text, 1..4),
        vec((text, text), 0..6),
        text,
        any::<(u32, u32, Vec<u32>)>(),
        mounts,
        resources,
        any::<[bool; 5]>(),
    )
        .prop_map(|(args, env, cwd, (uid, gid, groups), mounts, resources, flags)| Container {
            args,
            env,
            cwd,
            user: User { uid, gid, groups },
            root: if flags[0] { Root::Image(PathBuf::from("/images/a")) } else { Root::Machine { files: Vec::new() } },
            mounts: mounts.iter().map(|(at, read_only)| Mount { read_only: *read_only, ..mount_at(at) }).collect(),
            capabilities: vec!["CAP_NET_RAW".to_owned()],
            no_new_privileges: flags[1],
            read_only_root: flags[2],
            privileged: flags[3],
            tty: flags[4],
            resources,
            ..container()
        })
}

proptest! {
    #[test]
    fn parents_are_mounted_before_what_lies_below_them_and_nothing_twice(container in any_container()) {
        let config = config(&container, &[], &places(), &facts()).unwrap();
        let targets = targets(&config);
        for (index, target) in targets.iter().enumerate() {
            let later = &targets[index + 1..];
            prop_assert!(!later.iter().any(|it| it == target || target.starts_with(&format!("{it}/"))), "{targets:?}");
        }
        for mount in &container.mounts {
            prop_assert!(targets.contains(&mount.target.trim_end_matches('/').to_owned()));
        }
    }

    #[test]
    fn every_container_has_the_shape_that_runtimes_read(container in any_container()) {
        let config = config(&container, &[], &places(), &facts()).unwrap();
        let process = &config["process"];
        prop_assert!(process["args"].as_array().is_some_and(|args| args.len() == container.args.len()));
        prop_assert!(process["env"].as_array().is_some_and(|env| env.iter().all(|it| it.as_str().is_some_and(|it| it.contains('=')))));
        prop_assert!(process["cwd"].as_str().is_some_and(|cwd| !cwd.is_empty()));
        prop_assert_eq!(&process["user"]["uid"], container.user.uid);
        let ambient = process["capabilities"]["ambient"].as_array().map(Vec::len);
        prop_assert_eq!(ambient == Some(0), container.user.uid == 0);
        prop_assert_eq!(&config["root"]["readonly"], container.read_only_root);
        let namespaces = config["linux"]["namespaces"].as_array().unwrap();
        for kind in ["pid", "mount"] {
            prop_assert!(namespaces.iter().any(|it| it["type"] == kind));
        }
        for mount in config["mounts"].as_array().unwrap() {
            prop_assert!(mount["options"].is_array() && mount["source"].is_string() && mount["type"].is_string());
        }
        let resources = &config["linux"]["resources"];
        prop_assert!(resources["cpu"]["quota"].as_i64().is_none_or(|quota| quota > 0));
        prop_assert!(resources["memory"]["limit"].as_u64() != Some(0));
    }
}
