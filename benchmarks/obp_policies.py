"""The peer of benchmarks.bandit, run by a Python that has obp 0.4.1: its estimators, and policies that it learns from a log.

    python benchmarks/obp_policies.py LOG.npz ANSWERS.npz

LOG has contexts [n, width], actions, rewards, propensities [n], tested [m, width], and for the estimators chances [n, actions] and
predicted [n, actions]. ANSWERS has a policy [m, actions] by name, and the estimates by name.
"""

import sys

import numpy as np


def estimates(log: dict[str, np.ndarray]) -> dict[str, float]:
    """The value of the policy `chances` by each estimator."""
    from obp.ope import (
        DirectMethod,
        DoublyRobust,
        InverseProbabilityWeighting,
        SelfNormalizedInverseProbabilityWeighting,
        SwitchDoublyRobust,
    )

    given = {"reward": log["rewards"], "action": log["actions"], "pscore": log["propensities"], "action_dist": log["chances"][:, :, None],
             "estimated_rewards_by_reg_model": log["predicted"][:, :, None]}
    known = {"ips": InverseProbabilityWeighting(), "snips": SelfNormalizedInverseProbabilityWeighting(), "direct_method": DirectMethod(),
             "doubly_robust": DoublyRobust(), "switch_dr": SwitchDoublyRobust(tau=float(log["threshold"]))}
    return {name: float(one.estimate_policy_value(**given)) for name, one in known.items()}


def policies(log: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """[m, actions] of each learner."""
    from obp.ope import InverseProbabilityWeighting
    from obp.policy import IPWLearner, NNPolicyLearner
    from sklearn.linear_model import LogisticRegression

    contexts, actions, rewards, tested = log["contexts"], log["actions"], log["rewards"], log["tested"]
    centre, spread = contexts.mean(0), contexts.std(0) + 1e-9
    contexts, tested = (contexts - centre) / spread, (tested - centre) / spread
    count = int(log["count"])
    given = {"context": contexts, "action": actions, "reward": rewards, "pscore": log["propensities"]}
    found = {}
    learner = IPWLearner(n_actions=count, base_classifier=LogisticRegression(max_iter=1000))
    learner.fit(**given)
    found["obp IPWLearner"] = learner.predict(context=tested)[:, :, 0]
    network = NNPolicyLearner(n_actions=count, dim_context=contexts.shape[1], random_state=0, hidden_layer_size=(100,), max_iter=200,
                              off_policy_objective=InverseProbabilityWeighting().estimate_policy_value_tensor)
    network.fit(**given)
    found["obp NNPolicyLearner"] = network.predict_proba(context=tested)[:, :, 0]
    direct = np.zeros((len(tested), count))
    for action in range(count):  # the direct method: a logistic regression of the rewards of each action
        there = actions == action
        if len(set(rewards[there])) == 2:
            direct[:, action] = LogisticRegression(max_iter=1000).fit(contexts[there], rewards[there]).predict_proba(tested)[:, 1]
        elif there.any():
            direct[:, action] = rewards[there].mean()
    found["scikit-learn, direct"] = np.eye(count)[direct.argmax(1)]
    return found


if __name__ == "__main__":
    log = dict(np.load(sys.argv[1]))
    np.savez(sys.argv[2], **({f"estimate {name}": value for name, value in estimates(log).items()} if "chances" in log else policies(log)))
