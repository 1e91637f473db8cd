"""Generated run folders, in the form that a run writes."""

import json
import re

import numpy as np

from ob2i_tf.analysis import scores

UPDATES = {
    'OB2I': ('EpisodicUpdate', '@UcbBonus()', '@head_preferences'),
    'BEBU': ('EpisodicUpdate', None, '@head_preferences'),
    'BEBU-UCB': ('EpisodicUpdate', None, '@ucb_preferences'),
    'BEBU-IDS': ('EpisodicUpdate', None, '@ids_preferences'),
}
KNOWN = scores.published()


def config_text(method, game, seed, iterations=20, **bindings):
    update, bonus, acts_by = UPDATES[method]
    return ''.join(
        f'{name} = {value}\n'
        for name, value in {
            'Agent.preferences': acts_by,
            f'{update}.bonus': bonus,
            'make_atari.frame_skip': 4,
            'make_environment.name': repr(game),
            'MultiHeadQNetwork.num_heads': 10,
            'Runner.method': repr(method),
            'Runner.num_iterations': iterations,
            'Runner.seed': seed,
            'Runner.training_steps': 250000,
            'Runner.update': f'@{update}',
            **bindings,
        }.items()
    )


def write_run(base, method, game, seed, iterations=20, done=None, **bindings):
    """One run in base/<config>/<task>/seed<seed>, that ends near the paper's score; its folder."""
    task = re.sub(r'[^A-Za-z0-9_-]+', '_', game)
    config = method.lower().replace('-', '_') + '_atari'
    folder = base / config / task / f'seed{seed}'
    folder.mkdir(parents=True)
    (folder / 'config.gin').write_text(config_text(method, game, seed, iterations, **bindings))
    packages = {'ob2i_tf': '1.0.0', 'tensorflow': '2.21.0'}
    (folder / 'environment.json').write_text(
        json.dumps({'packages': packages, 'git_commit': 'abc', 'python': '3.11', 'earlier': []})
    )
    rng = np.random.default_rng([seed, *map(ord, method + game)])
    final, start = KNOWN.paper.loc[game, method], KNOWN.random[game]
    evaluation = ['iteration,frames,episodes,score_mean,score_std,score_min,score_max']
    training = [
        'iteration,frames,agent_steps,learner_steps,episodes,score_mean,return_mean,'
        'episode_length_mean,loss,bonus_mean,next_bonus_mean,q_mean,epsilon,'
        'agent_steps_per_second'
    ]
    played = ['iteration,frames,score,length']
    length = 300 + 40 * (sum(map(ord, game)) % 60)
    for i in range(iterations if done is None else done):
        frames = 1_000_000 * (i + 1)
        share = 1 - np.exp(-4 * (i + 1) / iterations)
        score = start + (final - start) * share * (1 + 0.12 * rng.standard_normal())
        evaluation.append(f'{i},{frames},30,{score!r},1.0,{score - 1!r},{score + 1!r}')
        bonus = 0.08 * share * np.exp(-1.5 * i / iterations) * (1 + 0.1 * rng.random())
        bonus = bonus if method == 'OB2I' else float('nan')
        training.append(
            f'{i},{frames},{frames // 4},{frames // 16},40,{score!r},1.0,{length},0.01,'
            f'{bonus},{bonus},1.0,0.1,300.0'
        )
        played += [f'{i},{frames},{score!r},{length + 10 * n}' for n in range(3)]
    for name, lines in (('eval', evaluation), ('train', training), ('eval_episodes', played)):
        (folder / f'{name}.csv').write_text('\n'.join(lines) + '\n')
    return folder
