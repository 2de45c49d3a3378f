//! How far a rolling update may stray from the wanted number of pods.

use k8s_openapi::api::apps::v1::DeploymentSpec;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::DeploymentError;
use crate::share::{Rounding, percentage, share, text};

/// The numbers that a decision turns on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limits {
    /// Pods wanted.
    pub(super) desired: i32,
    /// Pods beyond that during a rolling update.
    pub(super) surge: i32,
    /// Pods that may be missing during a rolling update.
    pub(super) unavailable: i32,
    /// `RollingUpdate`, not `Recreate`.
    pub(super) rolling: bool,
}

impl Limits {
    pub(super) fn read(spec: &DeploymentSpec) -> Result<Self, DeploymentError> {
        let desired = spec.replicas.unwrap_or(1).max(0);
        let strategy = spec.strategy.as_ref();
        match strategy.and_then(|strategy| strategy.type_.as_deref()).unwrap_or("RollingUpdate") {
            "RollingUpdate" => {}
            "Recreate" => return Ok(Self { desired, surge: 0, unavailable: 0, rolling: false }),
            other => return Err(DeploymentError::UnknownStrategy { value: other.to_owned() }),
        }
        let rolling = strategy.and_then(|strategy| strategy.rolling_update.clone()).unwrap_or_default();
        let surge = scaled("maxSurge", rolling.max_surge.as_ref(), desired, Rounding::Up)?;
        let mut unavailable = scaled("maxUnavailable", rolling.max_unavailable.as_ref(), desired, Rounding::Down)?;
        if surge == 0 && unavailable == 0 {
            // Neither a pod more nor a pod less would be a standstill; a quota may forbid the pod more.
            unavailable = 1;
        }
        Ok(Self { desired, surge, unavailable: unavailable.min(desired), rolling: true })
    }

    /// The most pods there may be.
    pub(super) fn most(&self) -> i32 {
        self.desired.saturating_add(self.surge)
    }

    /// The fewest pods that have to be available.
    pub(super) fn fewest(&self) -> i32 {
        self.desired - self.unavailable
    }
}

fn scaled(
    field: &'static str,
    value: Option<&IntOrString>,
    desired: i32,
    rounding: Rounding,
) -> Result<i32, DeploymentError> {
    let invalid = |value: String| DeploymentError::InvalidLimit { field, value };
    match value {
        // The API server fills in 25%; so does this, for a server that does not.
        None => Ok(percentage(25, desired, rounding)),
        Some(value) => share(value, desired, rounding).ok_or_else(|| invalid(text(value))),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::apps::v1::{DeploymentStrategy, RollingUpdateDeployment};

    use super::*;

    fn spec(desired: i32, surge: IntOrString, unavailable: IntOrString) -> DeploymentSpec {
        let rolling = RollingUpdateDeployment { max_surge: Some(surge), max_unavailable: Some(unavailable) };
        DeploymentSpec {
            replicas: Some(desired),
            strategy: Some(DeploymentStrategy { type_: Some("RollingUpdate".into()), rolling_update: Some(rolling) }),
            ..DeploymentSpec::default()
        }
    }

    fn percent(text: &str) -> IntOrString {
        IntOrString::String(text.to_owned())
    }

    #[test]
    fn surge_rounds_up_and_unavailable_rounds_down() {
        use IntOrString::Int;
        let table = [
            (10, Int(3), Int(2), (3, 2)),
            (10, percent("25%"), percent("25%"), (3, 2)),
            (1, percent("25%"), percent("25%"), (1, 0)),
            (4, percent("25%"), percent("25%"), (1, 1)),
            (3, percent("50%"), percent("50%"), (2, 1)),
            (2, percent("1%"), Int(0), (1, 0)),
            (7, percent("100%"), percent("0%"), (7, 0)),
            (5, percent("200%"), Int(0), (10, 0)),
            // Never more missing than wanted.
            (3, Int(0), Int(9), (0, 3)),
            (0, Int(1), Int(1), (1, 0)),
        ];
        for (desired, surge, unavailable, (most_surge, most_missing)) in table {
            let limits = Limits::read(&spec(desired, surge.clone(), unavailable.clone())).unwrap();
            let case = format!("{desired} {surge:?} {unavailable:?}");
            assert_eq!((limits.surge, limits.unavailable), (most_surge, most_missing), "{case}");
        }
    }

    #[test]
    fn both_limits_zero_let_one_pod_be_missing() {
        for (surge, unavailable) in [(IntOrString::Int(0), percent("1%")), (percent("0%"), percent("30%"))] {
            let limits = Limits::read(&spec(2, surge, unavailable)).unwrap();
            assert_eq!((limits.surge, limits.unavailable), (0, 1));
        }
    }

    #[test]
    fn a_limit_that_is_no_number_is_refused_by_its_field() {
        let error = Limits::read(&spec(2, percent("a few"), IntOrString::Int(1))).unwrap_err();
        assert!(error.to_string().starts_with("spec.strategy.rollingUpdate.maxSurge \"a few\""), "{error}");
        let error = Limits::read(&spec(2, IntOrString::Int(1), IntOrString::Int(-1))).unwrap_err();
        assert!(error.to_string().contains("maxUnavailable \"-1\""), "{error}");
    }

    #[test]
    fn a_strategy_that_nobody_knows_is_refused() {
        let mut spec = spec(1, IntOrString::Int(1), IntOrString::Int(0));
        spec.strategy = Some(DeploymentStrategy { type_: Some("Canary".into()), rolling_update: None });
        assert_eq!(Limits::read(&spec), Err(DeploymentError::UnknownStrategy { value: "Canary".into() }));
    }
}
