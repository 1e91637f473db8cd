"""Packaging; `pip install -c constraints.txt .` installs the tested set of releases."""

import os
import re

from setuptools import find_packages, setup

HERE = os.path.dirname(os.path.abspath(__file__))


def read(name: str) -> str:
    with open(os.path.join(HERE, name), encoding='utf-8') as file:
        return file.read()


def data_folders() -> dict[str, str]:
    """{package: folder} for agents/, gin/ and third_party/, installed below ob2i_tf/_data/.

    At the top level of site-packages a folder gin/ would collide with gin-config.
    """
    os.chdir(HERE)
    return {
        'ob2i_tf._data.' + folder.replace(os.sep, '.'): folder
        for top in ('agents', 'gin', 'third_party')
        for folder, _, files in os.walk(top)
        if files and '__pycache__' not in folder
    }


DATA = data_folders()

setup(
    name='ob2i_tf',
    version=re.search(r"__version__ = '(.*)'", read('ob2i_tf/__init__.py')).group(1),
    description='OB2I (ICML 2021) in TensorFlow 2: optimistic bootstrapping, backward induction',
    long_description=read('README.md') if os.path.exists(os.path.join(HERE, 'README.md')) else '',
    long_description_content_type='text/markdown',
    author='The maintainers of ob2i_tf',
    license='Apache-2.0',
    project_urls={'Paper': 'https://proceedings.mlr.press/v139/bai21d.html'},
    keywords='reinforcement learning, exploration, OB2I, bootstrapped DQN, Atari, TensorFlow',
    classifiers=[
        'Intended Audience :: Science/Research',
        'Operating System :: POSIX :: Linux',
        'Programming Language :: Python :: 3 :: Only',
        'Programming Language :: Python :: 3.10',
        'Programming Language :: Python :: 3.11',
        'Topic :: Scientific/Engineering :: Artificial Intelligence',
        'Typing :: Typed',
    ],
    python_requires='>=3.10,<3.12',
    packages=find_packages(include=['ob2i_tf', 'ob2i_tf.*']) + list(DATA),
    package_dir=DATA,
    package_data={
        'ob2i_tf': ['py.typed'],
        **{package: ['*'] for package in (*DATA, 'ob2i_tf.analysis.templates')},
    },
    entry_points={'console_scripts': ['ob2i-tf = ob2i_tf.training.main:main']},
    # TF-Agents pins typing-extensions to 4.5.0. The lower bounds stop pip from trying years of old
    # releases in search of a set that accepts it.
    install_requires=[
        'tensorflow>=2.21,<2.22',
        'tf-keras>=2.21,<2.22',
        'tf-agents==0.19.0',
        'numpy>=1.26,<2',
        'gymnasium>=1.3,<1.4',
        'ale-py>=0.12.1,<0.13',
        'absl-py>=2.1',
        'gin-config>=0.5,<0.6',
        'tensorboard>=2.21,<2.22',
        'tqdm>=4.66',
        'psutil>=5.9',
        'backports.zstd>=1.0,<2',
    ],
    extras_require={
        'analysis': [
            'pandas>=2.2,<3',
            'matplotlib>=3.8',
            'rliable>=1.2,<1.3',
            'jinja2>=3.1.2,<4',
            'imageio-ffmpeg>=0.6,<1',
        ],
        'cuda': ['tensorflow[and-cuda]>=2.21,<2.22'],
        'deepsea': ['bsuite>=0.3.5,<0.4'],
        'demo': ['bsuite>=0.3.5,<0.4', 'jinja2>=3.1.2,<4'],
        'maze': ['mlxtend>=0.23,<0.24'],
        'sweep': ['ray>=2.40,<3'],
        'test': ['pytest>=8', 'pytest-xdist>=3.5', 'hypothesis>=6.100'],
    },
)
