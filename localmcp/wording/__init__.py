"""Words as all searches see them: folding, stemming, stop words, languages."""
