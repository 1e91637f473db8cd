"""Parts with the parameters of the Atari protocol (table 4), for tests that do not vary them."""

import functools

from ob2i_tf import acting, agent, learner, optimizers, schedules, updates

adam = functools.partial(optimizers.adam, 2.5e-4)
linear = functools.partial(schedules.linear, start=1.0, final=0.1, steps=250_000)
QLearner = functools.partial(learner.QLearner, optimizer=adam)
TransitionUpdate = functools.partial(updates.TransitionUpdate, batch_size=32)
EpisodicUpdate = functools.partial(
    updates.EpisodicUpdate, batch_size=32, beta=0.5, batching='chunks'
)
Agent = functools.partial(
    agent.Agent,
    preferences=acting.head_preferences,
    epsilon=linear,
    discount=0.99,
    learning_starts=50_000,
    warmup='random',
    train_period=4,
    target_period=10_000,
)
