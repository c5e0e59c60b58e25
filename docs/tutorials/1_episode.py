"""Play an episode by hand: be the agents for one generated patient, and see what the replies earn.

python docs/tutorials/1_episode.py
"""

import gymnasium

# An id of the five systems' environments; a text in, a text out. Patients are generated, and split by patient.
env = gymnasium.make("ghar.envs.register:ghar/GHAR-v0", split="train", render_mode="ansi")
prompt, info = env.reset(seed=0)

# Agent-Top writes a sub-query, decides whether to retrieve it and from which meta-paths (by number). Agent-Low
# summarises what was retrieved, and at the end Agent-Top predicts. `info` names who acts and the legal replies, if few.
replies = {"rewrite": "heart failure", "retrieve": "yes", "metapaths": "4 9", "continue": "terminate", "predict": "3"}
done, reward = False, 0.0
while not done:
    choices = info["choices"]
    reply = replies.get(info["role"], "no fact")
    reply = reply if not choices or reply in choices else choices[0]
    print(f"\n[{info['agent']}: {info['role']}]\n{prompt}\n> {reply}")
    prompt, earned, done, _, info = env.step(reply)
    reward += float(earned)

print(f"\nReward {reward:.2f}: a right answer earns, a wrong one costs, the best constant one earns 0 on average.")

# The same episode as its audit trail: every effect that the episode's generator yielded, and its result.
print(env.render())
