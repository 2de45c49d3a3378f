//! `orlop scheduler`: binds pods to nodes.

use std::time::Duration;

use kube_controllers::scheduler::run::{DEFAULT_SCHEDULER, Scheduler};
use manager::context::Started;
use manager::descriptor::{Descriptor, Selection};
use manager::gates::Gates;
use serde_json::json;

use crate::controller_program::{self, ProgramSpec};

const NAME: &str = "kube-scheduler";
const PORT: u16 = 10259;

/// Run the scheduler, which binds pods to nodes.
#[derive(clap::Args)]
#[group(id = "scheduler")]
pub(crate) struct Arguments {
    #[command(flatten)]
    program: controller_program::Arguments,
    /// Name of this scheduler in `spec.schedulerName` of pods.
    #[arg(long, default_value = DEFAULT_SCHEDULER, env = "ORLOP_SCHEDULER_NAME")]
    scheduler_name: String,
}

/// A program of one: the scheduler, which takes its own name as its setting.
pub(crate) const DESCRIPTORS: &[Descriptor<String>] = &[Descriptor::new("scheduler", &[], |context, name| {
    let scheduler = Scheduler::new(context, name);
    Ok(Started::until_stopped(context, scheduler.run()))
})];

pub(crate) fn run(arguments: Arguments) -> anyhow::Result<()> {
    let Arguments { program, scheduler_name } = arguments;
    let configuration = json!({ "profiles": [{ "schedulerName": scheduler_name }] });
    let plan = ProgramSpec {
        name: NAME,
        port: PORT,
        descriptors: DESCRIPTORS,
        settings: Box::new(|_, _| scheduler_name),
        selection: Selection::all(),
        gates: Gates::default(),
        start_interval: Duration::ZERO,
        accounts: false,
        migration: None,
        configuration: ("kubescheduler.config.k8s.io", configuration),
        gauges: None,
    };
    controller_program::run(program, plan)
}
