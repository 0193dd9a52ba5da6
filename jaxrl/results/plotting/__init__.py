"""Pictures of results: learning curves, regret curves, discount curves, performance profiles."""
