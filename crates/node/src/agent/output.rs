//! Containers without a process: an init container whose image says so stands for what another container of its pod writes to its
//! standard output. It has a name and a log of its own, and costs nothing.
//!
//! # Guarantees
//! - It runs when the other one does, and has ended when that one has. Nothing of the pod waits for it.
//! - Its log is the other one's standard output, and nothing of its standard error.

use k8s_openapi::api::core::v1::{Container, ContainerState, ContainerStateTerminated, ContainerStateWaiting};
use k8s_openapi::api::core::v1::{ContainerStatus, PodSpec};

use super::logs::{Options, StandardStream};
use super::segment::Segment;

/// What stands before the other container's name in the image of such a container.
const IMAGE: &str = "orlop.dev/output-of/";

/// The image of a container that stands for this one's output.
#[must_use]
pub fn image(container: &str) -> String {
    format!("{IMAGE}{container}")
}

/// The container whose output a container of this image stands for, if it does. The name becomes a part of a path.
#[must_use]
pub fn of(image: &str) -> Option<&str> {
    image.strip_prefix(IMAGE).filter(|name| Segment::new(name).is_ok())
}

/// Whose log is read, and which part of it, for the log of a container of this image.
#[must_use]
pub fn read<'a>(container: &'a str, image: &'a str, options: Options) -> (&'a str, Options) {
    let Some(other) = of(image) else { return (container, options) };
    // It writes nothing to its standard error.
    let limit_bytes = if options.stream == Some(StandardStream::Error) { Some(0) } else { options.limit_bytes };
    (other, Options { stream: Some(StandardStream::Out), limit_bytes, ..options })
}

/// Whether it has no process.
pub(super) fn is_output(container: &Container) -> bool {
    container.image.as_deref().and_then(of).is_some()
}

/// The image of an init container.
pub(super) fn image_of<'a>(spec: &'a PodSpec, container: &str) -> Option<&'a str> {
    let mut all = spec.init_containers.iter().flatten();
    all.find(|one| one.name == container)?.image.as_deref()
}

/// The status of such a container, by that of the one it stands for. None: that one is not there.
pub(super) fn status(container: &Container, other: Option<&ContainerStatus>) -> ContainerStatus {
    let state = other.and_then(|other| other.state.clone()).unwrap_or_default();
    let is_running = state.running.is_some();
    let state = match (state.running, state.terminated) {
        (Some(running), _) => ContainerState { running: Some(running), ..ContainerState::default() },
        (None, Some(end)) => ContainerState {
            terminated: Some(ContainerStateTerminated {
                reason: Some("Completed".to_owned()),
                started_at: end.started_at,
                finished_at: end.finished_at,
                ..ContainerStateTerminated::default()
            }),
            ..ContainerState::default()
        },
        (None, None) => ContainerState {
            waiting: Some(ContainerStateWaiting { reason: Some("PodInitializing".to_owned()), message: None }),
            ..ContainerState::default()
        },
    };
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        ready: is_running,
        started: Some(is_running),
        state: Some(state),
        last_state: Some(ContainerState::default()),
        ..ContainerStatus::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_its_image_says_that_a_container_has_no_process() {
        assert_eq!(of(&image("compute")), Some("compute"));
        for other in ["orlop.dev/output-of/", "orlop.dev/machine", "example.org/orlop.dev/output-of/compute"] {
            assert_eq!(of(other), None, "{other}");
        }
    }

    #[test]
    fn no_image_leads_to_the_log_of_another_pod() {
        for name in ["..", "../x", "../../n_other_u/compute", "/etc", "a/b", "a\0"] {
            assert_eq!(of(&image(name)), None, "{name}");
        }
    }

    #[test]
    fn its_log_is_the_others_standard_output_alone() {
        let image = "orlop.dev/output-of/compute";
        let tail = Options { tail_lines: Some(3), ..Options::default() };
        let out = Options { stream: Some(StandardStream::Out), ..tail.clone() };
        assert_eq!(read("guest-console-log", image, tail.clone()), ("compute", out));
        let error = Options { stream: Some(StandardStream::Error), ..Options::default() };
        assert_eq!(read("guest-console-log", image, error.clone()).1.limit_bytes, Some(0));
        assert_eq!(read("compute", "orlop.dev/machine", error.clone()), ("compute", error));
    }
}
