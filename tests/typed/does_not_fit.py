"""A program of a user with mistakes, each of which type checkers report by the rule in the comment of its line."""

import envs
import jaxrl

config = jaxrl.PPOConfig(num_envs="four")  # reportArgumentType
print(jaxrl.misspelt)  # reportAttributeAccessIssue
print(envs.misspelt)  # reportAttributeAccessIssue
print(jaxrl.bandits.misspelt)  # reportAttributeAccessIssue
jaxrl.PPOConfig(memory=3)  # reportArgumentType
jaxrl.PPOConfig(num_env=4)  # reportCallIssue
jaxrl.Hyperbolic(rate=0.02)  # reportCallIssue
algo = jaxrl.ppo(envs.make("cartpole"), config)
jaxrl.train(algo, seeds="all")  # reportArgumentType
jaxrl.train(algo, env_step=1_000)  # reportCallIssue
result = jaxrl.train(algo, seeds=2)
result.tabel()  # reportAttributeAccessIssue
number: int = result.table()  # reportAssignmentType
