use proptest::prelude::*;

use super::*;

/// What a user does to a pool, and what befalls its VMs.
#[derive(Clone, Debug)]
enum Deed {
    Scale(usize),
    Edit(u8),
    Lose(usize),
    Limit(u8),
    /// Other data volumes: each VM is made again.
    Disks(u8),
}

fn any_deed() -> impl Strategy<Value = Deed> {
    prop_oneof![
        (0..8_usize).prop_map(Deed::Scale),
        (0..3_u8).prop_map(Deed::Edit),
        (0..8_usize).prop_map(Deed::Lose),
        (1..5_u8).prop_map(Deed::Limit),
        (0..3_u8).prop_map(Deed::Disks),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(testkit::soak::cases(60)))]

    /// Whatever happens, a pool comes to rest with what is asked for, each VM of the template and with a number of its own; and on
    /// the way an update makes no more unavailable than it may.
    #[test]
    fn a_pool_comes_to_rest_at_what_is_asked_for(deeds in prop::collection::vec(any_deed(), 1..8)) {
        let mut world = World::settled(pool(4, json!({ "maxUnavailable": 1 })));
        for deed in deeds {
            match deed {
                Deed::Scale(replicas) => edited(&mut world, &json!({ "replicas": replicas })),
                Deed::Edit(to) => {
                    let spec = json!({ "template": { "spec": { "hostname": format!("h{to}") } } });
                    edited(&mut world, &json!({ "virtualMachineTemplate": { "spec": spec } }));
                }
                Deed::Disks(to) => {
                    let disk = json!({ "metadata": { "name": "root" }, "spec": { "source": { "http": { "url": format!("http://{to}") } } } });
                    edited(&mut world, &json!({ "virtualMachineTemplate": { "spec": { "dataVolumeTemplates": [disk] } } }));
                }
                Deed::Limit(most) => edited(&mut world, &json!({ "maxUnavailable": most })),
                Deed::Lose(one) => {
                    if one < world.instances.len() {
                        world.instances.remove(one);
                    }
                }
            }
            let most = match &world.pool.spec.max_unavailable {
                Some(k8s_openapi::apimachinery::pkg::util::intstr::IntOrString::Int(most)) => usize::try_from(*most).unwrap(),
                other => panic!("{other:?}"),
            };
            for _ in 0..100 {
                let plan = world.plan();
                prop_assert!(plan.create.is_empty() || plan.delete.is_empty());
                let before = world.available();
                let (restarts, count) = (plan.restart.len(), world.vms.len());
                let wanted = usize::try_from(world.pool.spec.replicas.unwrap()).unwrap();
                if plan == PoolPlan::default() && world.instances.len() == world.vms.len() {
                    break;
                }
                world.act(plan);
                prop_assert!(world.vms.len() <= count.max(wanted), "those that go are counted, too");
                if restarts > 0 && before <= wanted {
                    prop_assert!(wanted - world.available() <= most.max(wanted - before), "{restarts} of {wanted}");
                }
                world.run();
            }
            prop_assert_eq!(world.plan(), PoolPlan::default());
            let wanted = usize::try_from(world.pool.spec.replicas.unwrap()).unwrap();
            prop_assert_eq!(world.vms.len(), wanted);
            let current = &world.pool.spec.virtual_machine_template.spec.as_ref().unwrap().template.spec;
            let hostname = current.as_ref().unwrap().hostname.clone();
            for vm in &world.vms {
                prop_assert_eq!(&vm.spec.template.spec.as_ref().unwrap().hostname, &hostname);
            }
            for one in &world.instances {
                prop_assert_eq!(&one.spec.hostname, &hostname);
            }
        }
    }
}
